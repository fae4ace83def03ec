"""Pulumi.yaml and the list of docs/configuration.md: those of the models, with links that work."""

import re

import pytest

from scripts import settings_page
from scripts.settings_page import BEGIN, END, MARK, PAGE, PROJECT, Schema


def test_pulumi_yaml_and_the_page_have_the_settings_of_the_models():
    schema = settings_page.schema()
    for path, write in ((PROJECT, settings_page.project), (PAGE, settings_page.update_page)):
        text = path.read_text()
        assert write(text, schema) == text, "run `make docs`"


def test_a_reference_of_a_description_leads_to_a_section():
    listed = settings_page.settings_list(settings_page.schema())
    links = re.findall(r"\]\(([\w-]+\.md)?(?:#([\w-]+))?\)", listed)
    assert len(links) == listed.count("](")
    for page, section in links:
        text = (PAGE.parent / (page or PAGE.name)).read_text()
        headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        assert section in {"", *(heading.lower().replace(" ", "-") for heading in headings)}


def test_everything_beside_the_list_is_kept():
    schema: Schema = {
        "one": {"type": "string", "default": "", "description": "a"},
        "two": {"type": "boolean", "default": True, "description": "c. See docs/serve.md"},
    }
    page = settings_page.update_page(f"before\n{BEGIN}old\n{END}after\n", schema)
    before, listed, after = re.split(f"{re.escape(BEGIN)}|{re.escape(END)}", page)
    assert (before, after) == ("before\n", "after\n")
    assert listed.splitlines() == ['- `one` (`""`): a', "- [`two`](serve.md) (`true`): c"]


@pytest.mark.parametrize("page", ["", BEGIN, END, END + BEGIN])
def test_a_page_without_its_marks_is_refused(page):
    with pytest.raises(ValueError, match="restore it"):
        settings_page.update_page(page, {})
    with pytest.raises(ValueError, match="restore it"):
        settings_page.project(page, {})
    assert settings_page.project(f"name: x\n{MARK}old", {}) == f"name: x\n{MARK}config: {{}}\n"
