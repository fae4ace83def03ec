"""The site: links out of it, its list of versions, and a list of pages that has all of them."""

import json
import re
from pathlib import Path

from scripts import website

ROOT = Path(__file__).parents[3]


def test_links_to_code_lead_to_the_repository_or_are_plain_text():
    page = ROOT / "docs/promises.md"
    kept = {page, ROOT / "docs/train.md", ROOT / "docs/demo.svg"}
    text = (
        "[train](train.md#x) ![A run](demo.svg) [a test](../tests/pages.py#L3) [out](https://x.org)"
        " [gone](gone.md) [course](course.ipynb)"
    )
    there = website.links(text, page, kept, ROOT, "https://git.example.org/a/b/blob/main")
    blob = "https://git.example.org/a/b/blob/main"
    assert there == (
        f"[train](train.md#x) ![A run](demo.svg) [a test]({blob}/tests/pages.py#L3)"
        f" [out](https://x.org) [gone](gone.md) [course]({blob}/docs/course.ipynb)"
    )
    assert website.links(text, page, kept, ROOT, "/blob/main") == (
        "[train](train.md#x) ![A run](demo.svg) a test [out](https://x.org) [gone](gone.md) course"
    )


def test_versions_are_those_that_are_built_newest_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SITE", "https://x.example.org/yard/")
    for name in ("v0.9.0", "v0.10.0", "dev"):
        (website.SITE / name).mkdir(parents=True)
        (website.SITE / name / "index.html").touch()
    found = json.loads(json.dumps(website.versions()))
    assert [each["version"] for each in found] == ["v0.10.0", "v0.9.0", "dev"]
    assert [each.get("preferred", False) for each in found] == [True, False, False]
    assert found[0]["url"] == "https://x.example.org/yard/v0.10.0/"


def test_the_site_lists_all_pages():
    """Sphinx says so too, later."""
    text = "".join(path.read_text() for path in (ROOT / "docs/site").glob("*.md"))
    listed = set(re.findall(r"^(docs/[\w-]+|[A-Z]+)$", text, re.MULTILINE))
    pages = {f"docs/{path.stem}" for path in (ROOT / "docs").glob("*.md")}
    assert listed == pages | {"README", "CONTRIBUTING", "CHANGELOG"}
