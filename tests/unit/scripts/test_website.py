"""The site: its links, its list of versions, its lists of pages, and what it has for agents."""

import json
import re
from pathlib import Path

import pytest
import yaml

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


@pytest.mark.parametrize("page", website.listed((ROOT / "docs/site/courses.md").read_text()))
def test_a_page_for_readers_of_a_course_begins_with_it(page):
    assert website.beginning((ROOT / f"{page}.md").read_text())[1].startswith("This page is for ")


def test_a_page_without_a_first_sentence_is_refused():
    assert website.beginning("# A *b*\n\nSee [C\nd](e.md#f), 1.5 g. More.\n") == (
        "A *b*",
        "See C d, 1.5 g.",
    )
    for page in ("", "Text.\n", "# Title\n", "# Title\nNo end\n"):
        with pytest.raises(ValueError, match="not with a title and a sentence"):
            website.beginning(page)


def test_agents_find_all_pages_and_all_links_of_the_skill_lead_to_one(tmp_path):
    website.prepare(ROOT, tmp_path / "source", "/blob/main")
    site = tmp_path / "source" / website.EXTRA  # its content is that of the built site's root
    title, summary, *sections = (site / "llms.txt").read_text().split("\n\n")
    assert title == "# Trainyard"
    assert summary.startswith("> Trainyard sets up and runs a Ray cluster for training PyTorch")
    headings, items = sections[::2], "\n".join(sections[1::2]).splitlines()
    assert [each for each in headings if not re.fullmatch(r"## \w+", each)] == []
    found = [re.fullmatch(r"- \[([^\]]+)\]\((\S+\.md)\): (.{20,250}\.)", each) for each in items]
    paths = [each[2] for each in found if each]
    assert len(paths) == len(items) == len(set(paths))
    assert {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")} < {*paths, "cli.md"}
    assert [path for path in paths if not (site / path).is_file()] == []
    skill = site / "docs/skill.md"
    front, _, body = skill.read_text().removeprefix("---\n").partition("---\n")
    assert yaml.safe_load(front).keys() == {"name", "description"}
    named = set(re.findall(r"\]\(((?!https:)[^)#]+)", body))
    assert "../llms.txt" in named
    assert [path for path in named if not (skill.parent / path).is_file()] == []
