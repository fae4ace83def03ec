"""Foreign text in a comment stays text: read by a parser of what GitHub shows."""

import re

import pytest
from markdown_it import MarkdownIt

from tests.hostile import HARM, MARKDOWN
from trainyard.access import markdown
from trainyard.access.terminal import CONTROL, clean

ALL = HARM | MARKDOWN


def tokens(page):
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(page):
        yield token
        yield from token.children or ()


def shown(page):
    """A parsed page: kind and content of each token that has one, and of all inline HTML."""
    kept = [token for token in tokens(page) if token.type != "inline"]
    return [(token.type, token.content or token.tag) for token in kept]


@pytest.mark.parametrize("harm", ALL.values(), ids=ALL)
def test_foreign_text_stays_text(harm):  # F39
    flat = " ".join(harm.split())
    page = f"- **what** {markdown.text(harm)} x\n\n| a | b |\n| --- | --- |\n"
    page += f"| {markdown.text(harm)} | x |\n"
    found = shown(page)
    assert not CONTROL.search(page.replace(markdown.NOTHING, ""))
    plain = shown("- **what** plain x\n\n| a | b |\n| --- | --- |\n| plain | x |\n")
    assert [kind for kind, _ in found if kind != "text"] == [
        kind for kind, _ in plain if kind != "text"
    ]
    text = "".join(content for kind, content in found if kind == "text")
    assert clean(flat) in text.replace("\u200b", "")
    assert not re.search(r"[@#]\w|GH-\d", text, re.IGNORECASE)
    assert not re.search(r"://|www\.", page)  # GitHub makes links of these


@pytest.mark.parametrize("harm", ALL.values(), ids=ALL)
def test_foreign_text_as_code_stays_code(harm):  # F39
    page = f"- {markdown.code(harm)}\n\n| a | b |\n| --- | --- |\n| {markdown.code(harm)} | x |\n"
    found = shown(page)
    assert not CONTROL.search(page)
    spans = [content for kind, content in found if kind == "code_inline"]
    # Or HTML of ours round a text.
    html = [content for kind, content in found if kind == "html_inline"]
    assert html in ([], ["<code>", "</code>"] * 2)
    texts = [content for kind, content in found if kind == "text" and content not in "abx"]
    assert (spans or ["".join(texts)]) in ([clean(harm)] * 2, [clean(harm) * 2])
    allowed = {"code_inline", "html_inline", "text", "softbreak"}
    allowed |= {f"{name}_{end}" for name in STRUCTURE for end in ("open", "close")}
    assert {kind for kind, _ in found} <= allowed


STRUCTURE = ("bullet_list", "list_item", "paragraph", "table", "thead", "tbody", "tr", "th", "td")


@pytest.mark.parametrize("harm", ALL.values(), ids=ALL)
def test_lines_of_foreign_text_stay_a_block(harm):  # F39
    block = markdown.block(f"one\n{harm}\ntwo")
    page = f"before\n\n{block}\nafter\n"
    found = [(kind, content) for kind, content in shown(page) if kind in ("fence", "text")]
    assert [kind for kind, _ in found] == ["text", "fence", "text"]
    assert found[1][1].startswith("one\n")
    assert found[1][1].endswith("\ntwo\n")
    assert not CONTROL.search(page)
