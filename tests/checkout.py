"""A copy of this checkout as a user has it: all files in git, and an environment of its own."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests import ran

ROOT = Path(__file__).resolve().parents[1]
OWN = ("python", "pip", "activate", "Activate")  # programs that name the environment they are of


def copy(target: Path) -> Path:
    """Copy the files that git tracks or would, with an environment; the copy.

    The environment has its own Python, in which the copy is installed as `pip install -e` does it,
    and sees the packages and programs of the one that runs the tests. `train` is the copy's own.
    """
    names = ran.output(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT
    ).split("\0")
    for name in filter(None, names):
        if os.path.lexists(ROOT / name):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)
    environment = target / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    paths = sysconfig.get_paths()
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))
    (packages / "checkout.pth").write_text(f"{paths['purelib']}\n{target}\n")
    for program in Path(paths["scripts"]).iterdir():
        if not program.name.startswith(OWN):
            (environment / "bin" / program.name).symlink_to(program)
    train = environment / "bin" / "train"
    _, _, code = train.read_text().partition("\n")
    train.unlink()
    train.write_text(f"#!{environment}/bin/python\n{code}")
    train.chmod(0o755)
    (environment / ".ready").write_text(f"{environment.resolve()}\n")  # what `make` looks at
    return target
