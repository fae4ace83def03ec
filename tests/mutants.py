"""Mutants of modules that guard money, data and secrets: `python -m tests.mutants [TURN]`.

mutmut changes one thing at a time in a module and runs the module's tests. The output counts, for
each function, the changes that no test noticed. It is a list to read and never fails: many changes
only alter a message, or are noticed by slower tests.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ROOT / "build" / "mutants"
# One module each turn of CI, with the tests that guard it.
LAMBDA = "infra/places/lambda_cloud"
GUARDS = [
    (f"{LAMBDA}/machines.py", f"tests/unit/{LAMBDA}/test_machines.py"),
    (
        "trainyard/resume/checkpoint_files.py",
        "tests/unit/trainyard/resume/test_checkpoint_files.py",
    ),
    ("trainyard/client/ui/guard.py", "tests/unit/trainyard/client/ui/test_guard.py"),
    ("node/ending.py", "tests/unit/node/test_ending.py"),
]


def main(arguments: Sequence[str]) -> None:
    """Mutate the module of a turn (1 to 4), or of all turns."""
    install = f"{ROOT}/.venv/bin/uv pip install --quiet --require-hashes --target".split()
    install += [str(PACKAGES), "-r", f"{ROOT}/requirements/mutants.txt"]
    subprocess.run(install, check=True)
    chosen = [GUARDS[int(turn) - 1] for turn in arguments] or GUARDS
    for module, tests in chosen:
        with tempfile.TemporaryDirectory(prefix="trainyard-mutants-") as folder:
            found = _survivors(Path(folder), module, tests)
            print(f"{module}: {found}", flush=True)  # noqa: T201 - the result


def _survivors(folder: Path, module: str, tests: str) -> str:
    """Return how many mutants survive in each function of a module, mutated in a copy."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    # Links lead into the environment, which mutmut would copy.
    names = [n for n in tracked.stdout.decode().split("\0")[:-1] if not (ROOT / n).is_symlink()]
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    copied = sorted({name.partition("/")[0] for name in names} - {"pyproject.toml"})
    with (folder / "pyproject.toml").open("a") as settings:
        settings.write(
            f'\n[tool.mutmut]\nsource_paths = ["{module}"]\n'
            f'pytest_add_cli_args_test_selection = ["{tests}"]\nalso_copy = {copied}\n'
        )
    mutmut = [sys.executable, "-m", "mutmut"]
    environment = os.environ | {"PYTHONPATH": str(PACKAGES)}
    log = folder / "mutmut.txt"
    with log.open("w") as out:
        run = [*mutmut, "run", "--max-children", "1"]
        subprocess.run(run, cwd=folder, env=environment, stdout=out, stderr=out, check=False)
    results = subprocess.run(
        [*mutmut, "results"], cwd=folder, env=environment, check=False, capture_output=True
    ).stdout.decode()
    lines = [line.strip() for line in results.splitlines() if "__mutmut_" in line]
    # Of a line "a.b.x_name__mutmut_3: survived".
    counts = Counter(
        (line.partition("__mutmut_")[0].rpartition(".")[2], line.rpartition(": ")[2])
        for line in lines
    )
    found = [f"{name} {count} {how}" for (name, how), count in counts.most_common()]
    return ", ".join(found) or f"no mutant is left ({log.read_text().splitlines()[-1]})"


if __name__ == "__main__":
    main(sys.argv[1:])
