"""`python -m scripts.website`: the pages of docs/ as a site with a reference, in out/site/VERSION.

Sphinx reads a copy: the pages stay plain Markdown, as a forge shows them. All of its warnings are
errors, so a link to a page or a heading that is missing fails. VERSION is the tag of HEAD, else
`dev`. Versions that are in out/site already stay, and the switcher lists them. Next to each page is
its Markdown; llms.txt lists these, and docs/skill.md is for a coding agent that uses `train`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts import release
from trainyard.access import terminal

SITE = Path("out/site")
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
ASSETS = {".md", ".svg", ".png", ".ipynb"}
LATEST = "dev"
EXTRA = "_extra"  # Sphinx copies what is there into the site as it is
# The pages of a list, in a page of docs/site/.
TREE = re.compile(r"```\{toctree\}\n:hidden:\n\n(?P<names>[^`]+)```")
BEGINNING = re.compile(r"# (?P<title>[^\n]+)\n+(?P<sentence>.+?\.)\s", re.DOTALL)
SKILL_PAGES = ("commands", "jobs", "resume")
SKILL = """\
---
name: trainyard
description: {summary} Use it to write, submit, resume and look at training jobs with `train`.
---
[All pages](../llms.txt) say more.

"""
# Opens the newest version; a static host needs no rule for it.
FORWARD = """\
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Trainyard</title>
<meta http-equiv="refresh" content="0; url={version}/index.html">
</head><body><a href="{version}/index.html">Trainyard</a></body></html>
"""


def main() -> None:
    """Build the site of HEAD's version; exit with Sphinx's status."""
    checkout = Path.cwd()
    try:
        address = release.repository(checkout)
    except release.ReleaseError as error:
        sys.exit(terminal.clean_lines(f"error: {error}"))
    version = _version(checkout)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        prepare(checkout, source, f"{address}/blob/{'main' if version == LATEST else version}")
        built = SITE / version
        shutil.rmtree(built, ignore_errors=True)
        command = ["-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "--jobs", "auto"]
        done = subprocess.run(
            [sys.executable, *command, "-d", f"{folder}/doctrees", source, built],
            env=os.environ | {"SITE_VERSION": version, "SITE_SWITCHER": _switcher()},
            check=False,
        )
    if done.returncode:
        sys.exit(done.returncode)
    found = versions()
    (SITE / "switcher.json").write_text(json.dumps(found, indent=2), encoding="utf-8")
    newest = next((each for each in found if each.get("preferred")), found[0])
    (SITE / "index.html").write_text(FORWARD.format(version=newest["version"]), encoding="utf-8")
    terminal.say(f"{built}/index.html; look at it: python -m http.server -d {SITE}")


def prepare(checkout: Path, source: Path, blob: str) -> None:
    """Copy the pages, Sphinx's settings and the library, and write the reference of `train`.

    `blob`, the address of the checkout's files, begins with "/" if the repository has none.
    """
    (source / "_static").mkdir(parents=True)
    paths = [checkout / name for name in PAGES]
    paths += [path for path in (checkout / "docs").iterdir() if path.suffix in ASSETS]
    kept = {path.resolve() for path in paths}
    for path in paths:
        target = source / path.relative_to(checkout)
        target.parent.mkdir(exist_ok=True)
        if path.suffix == ".md":
            text = path.read_text(encoding="utf-8")
            target.write_text(links(text, path, kept, checkout, blob), encoding="utf-8")
        elif path.suffix != ".ipynb":
            shutil.copy(path, target)
    command = ["-m", "typer", "trainyard.client.cli", "utils", "docs", "--name", "train"]
    command += ["--title", "Options of each command"]
    # Without its user's settings, and so that no line is as wide as a terminal.
    done = subprocess.run([sys.executable, *command], check=True, capture_output=True, text=True)
    (source / "cli.md").write_text(done.stdout, encoding="utf-8")
    shutil.copytree(source, source / EXTRA, ignore=shutil.ignore_patterns("_*", "*.svg", "*.png"))
    for path in (checkout / "docs/site").glob("*.*"):
        shutil.copy(path, source)
    shutil.copytree(checkout / "trainyard", source / "_package/trainyard")
    _write_lists(source)


def listed(page: str) -> list[str]:
    """Return the names of the pages that a page of docs/site/ lists."""
    return [name for tree in TREE.finditer(page) for name in tree["names"].split()]


def beginning(page: str) -> tuple[str, str]:
    """Return a page's title and its first sentence, on one line and without links.

    Raises:
        ValueError: the page does not begin with them.
    """
    found = BEGINNING.match(page)
    if found is None:
        raise ValueError(f"a page begins with {page[:80]!r}, not with a title and a sentence")
    sentence = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", " ".join(found["sentence"].split()))
    return found["title"], sentence


def links(text: str, page: Path, kept: set[Path], checkout: Path, blob: str) -> str:
    """Return a page whose links to other files of the checkout lead to the repository.

    Where it has no address they are plain text. A link to a file that is missing stays, so that
    Sphinx reports it.
    """

    def repository_link(link: re.Match[str]) -> str:
        path, _, heading = link["path"].partition("#")
        target = (page.parent / path).resolve()
        if target in kept and target.suffix != ".ipynb":
            return link[0]
        if not target.exists():
            return link[0]
        inside = target.relative_to(checkout.resolve()).as_posix()
        name = link["before"].removesuffix("](").removeprefix("[")
        if blob.startswith("/"):
            return name
        return f"[{name}]({blob}/{inside}{'#' if heading else ''}{heading})"

    return release.LINK.sub(repository_link, text)


def versions() -> list[dict[str, object]]:
    """Return the versions in out/site as the theme's switcher reads them, the newest first."""
    names = [path.parent.name for path in SITE.glob("*/index.html")]
    tags = [name for name in names if name != LATEST]
    tags.sort(key=lambda name: [int(part) for part in re.findall(r"\d+", name)], reverse=True)
    base = _switcher().removesuffix("switcher.json")
    return [
        {"version": name, "url": f"{base}{name}/"}
        | ({"preferred": True} if name in tags[:1] else {})
        for name in (*tags, *(each for each in names if each == LATEST))
    ]


def _write_lists(source: Path) -> None:
    """Write the lists of pages, with each one's first sentence, into their pages and llms.txt."""
    index = (source / "index.md").read_text(encoding="utf-8")
    title, summary = beginning(index)
    for_agents = f"# {title}\n\n> {summary}\n"
    for name in listed(index):
        page = source / f"{name}.md"
        text = page.read_text(encoding="utf-8")
        items = ""
        for each in listed(text):
            if (path := source / f"{each}.md").exists():  # the library's pages come later
                about, sentence = beginning(path.read_text(encoding="utf-8"))
                items += f"- [{about}]({each}.md): {sentence}\n"
        text = text.replace("```{toctree}", f"{items}\n```{{toctree}}")
        page.write_text(text, encoding="utf-8")
        for_agents += f"\n## {beginning(text)[0]}\n\n{items}"
    extra = source / EXTRA
    (extra / "llms.txt").write_text(for_agents, encoding="utf-8")
    pages = ((extra / f"docs/{name}.md").read_text(encoding="utf-8") for name in SKILL_PAGES)
    skill = SKILL.format(summary=summary) + "\n".join(pages)
    (extra / "docs/skill.md").write_text(skill, encoding="utf-8")


def _switcher() -> str:
    """The address of the switcher's file: below SITE, else at the root of the host."""
    return f"{os.environ.get('SITE', '').rstrip('/')}/switcher.json"


def _version(checkout: Path) -> str:
    tags = release.git(checkout, "tag", "--points-at", "HEAD").split()
    return next((tag for tag in tags if re.fullmatch(r"v\d+\.\d+\.\d+\S*", tag)), LATEST)


if __name__ == "__main__":
    main()
