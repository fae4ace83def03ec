"""`python -m infra.lock`: pins the requirements again; uv keeps allowed versions of a lock."""

import re
import shutil
import subprocess
from pathlib import Path

UV = ".venv/bin/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 "
UV += "--no-emit-index-url --no-emit-find-links --custom-compile-command"
# PyTorch and its dependencies: TPU hosts have other versions of these.
OF_PYTORCH = ("torch==", "torchvision==", "triton", "nvidia", "cuda", "setuptools")
OTHERS = Path("build/constraints.txt")


def main() -> None:
    """Compile all locks; earlier ones are constraints of later ones."""
    for name in ("setup", "base", "dev"):
        _compile(f"requirements/{name}")
    base = Path("requirements/base.txt")
    _compile("requirements/host", f"-c {base}")
    for name in ("ray/torch", "jupyter/requirements", "mlflow/requirements"):
        _compile(f"docker/{name}", f"-c {base}")
    _compile("docker/ray/requirements", f"-c {base} --override requirements/without-torch.in")
    _compile("requirements/site", f"-c {base}")
    _compile("requirements/mutants")
    pins = re.findall(r"^[^ #]+==[^\\\n]*", base.read_text(), re.MULTILINE)
    OTHERS.parent.mkdir(exist_ok=True)
    OTHERS.write_text("\n".join(pin for pin in pins if not pin.startswith(OF_PYTORCH)))
    _compile("requirements/tpu", f"-c {OTHERS}")
    _compile("infra/policy/requirements")
    for image in ("ray", "jupyter", "mlflow"):
        shutil.copy("requirements/setup.txt", f"docker/{image}/")


def _compile(name: str, options: str = "") -> None:
    options += f" {name}.in -o {name}.txt"
    subprocess.run([*UV.split(), "make lock", *options.split()], check=True)


if __name__ == "__main__":
    main()
