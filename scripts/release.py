"""`python -m scripts.release`: checks a tagged commit, and builds its distribution in out/dist.

The project's addresses come from the repository that publishes: REPOSITORY, else the remote
`origin` if it is one of https. So a fork's distribution names the fork. Nothing is published.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from trainyard.access import terminal

OUT = Path("out/dist")
PROJECT, CHANGES, README = "pyproject.toml", "CHANGELOG.md", "README.md"
HEADING = re.compile(r"^## \[(?P<version>[^\]]+)\](?: - (?P<date>\d{4}-\d\d-\d\d))?$", re.MULTILINE)
# A link of the README, of a picture or not, to a file of the checkout.
LINK = re.compile(r"(?P<before>(?P<picture>!?)\[[^\]]*\]\()(?P<path>(?![a-z]+:|#)[^)]+)\)")
REPOSITORY = re.compile(r"https://[\w.-]+/[\w./-]+?")


class ReleaseError(Exception):
    """The commit cannot be released; the message says what to do."""


def main() -> None:
    """Check HEAD, then build it."""
    try:
        version = check(Path())
        address = repository(Path())
    except ReleaseError as error:
        sys.exit(terminal.clean_lines(f"error: {error}"))
    if not address:
        terminal.say("the distribution names no address: REPOSITORY=https://… would give one")
    shutil.rmtree(OUT, ignore_errors=True)
    build(address, f"v{version}")


def check(checkout: Path) -> str:
    """Return the version, if HEAD is its tagged commit and its changes are written down.

    Raises:
        ReleaseError: a file differs from HEAD, the tag is missing or another, or CHANGELOG.md
            has no dated entry of the version.
    """
    project = tomllib.loads((checkout / PROJECT).read_text(encoding="utf-8"))["project"]
    version = str(project["version"])
    if changed := git(checkout, "status", "--porcelain"):
        raise ReleaseError(f"files differ from HEAD: commit or remove them\n{changed}")
    tags = git(checkout, "tag", "--points-at", "HEAD").split()
    if f"v{version}" not in tags:
        raise ReleaseError(
            f"{PROJECT} has version {version}, and HEAD has the tags {' '.join(tags) or 'none'}: "
            f"run `git tag v{version}`, or change the version"
        )
    dates = dict(HEADING.findall((checkout / CHANGES).read_text(encoding="utf-8")))
    if not dates.get(version):
        raise ReleaseError(
            f"{CHANGES} has no entry of {version} with a date: rename [Unreleased] to "
            f"`## [{version}] - YYYY-MM-DD`, and begin an empty [Unreleased]"
        )
    return version


def repository(checkout: Path) -> str:
    """Return the address of the repository; empty if it has none that a browser opens.

    Raises:
        ReleaseError: REPOSITORY is not such an address.
    """
    given = os.environ.get("REPOSITORY", "")
    address = (given or git(checkout, "remote", "get-url", "origin")).strip()
    address = address.removesuffix("/").removesuffix(".git")
    if REPOSITORY.fullmatch(address):
        return address
    if given:
        raise ReleaseError(f"REPOSITORY={given!r:.80} is not like https://HOST/OWNER/NAME")
    return ""


def project_with_addresses(text: str, address: str) -> str:
    """Return pyproject.toml with the addresses that a package index shows."""
    pages = {"Repository": "", "Issues": "/issues", "Changelog": f"/blob/main/{CHANGES}"}
    lines = [f'{name} = "{address}{path}"' for name, path in pages.items()]
    return text + "\n".join(["\n[project.urls]", *lines, ""])


def readme_with_addresses(text: str, address: str, tag: str) -> str:
    """Return the README with links that also work outside of the checkout."""

    def absolute(link: re.Match[str]) -> str:
        kind = "raw" if link["picture"] else "blob"
        return f"{link['before']}{address}/{kind}/{tag}/{link['path']})"

    return LINK.sub(absolute, text)


def build(address: str, tag: str) -> None:
    """Build HEAD from a copy: builds leave files behind."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        packed = subprocess.run(["git", "archive", "HEAD"], check=True, stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", copy], check=True, input=packed.stdout)
        if address:
            for name, text in (
                (PROJECT, project_with_addresses((copy / PROJECT).read_text(), address)),
                (README, readme_with_addresses((copy / README).read_text(), address, tag)),
            ):
                (copy / name).write_text(text, encoding="utf-8")
        programs = Path(sys.executable).parent
        where = ["--python", sys.executable, "--out-dir", str(OUT.absolute())]
        command = [str(programs / "uv"), "build", "--quiet", "--no-build-isolation", *where]
        subprocess.run(command, cwd=copy, check=True)
    for path in sorted(OUT.glob("trainyard_ray-*")):
        terminal.say(str(path))


def git(checkout: Path, *arguments: str) -> str:
    """Return what git prints of a checkout; empty if it fails."""
    done = subprocess.run(
        ["git", "-C", checkout, *arguments], capture_output=True, text=True, check=False
    )
    return done.stdout


if __name__ == "__main__":
    main()
