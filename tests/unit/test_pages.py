"""The pages: each command parses, and is run in a place or has a reason why not."""

import ast
import os
import re
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.main

import engine.cli
import infra.operate.drift.__main__
import infra.operate.reap
import infra.operate.review.__main__
from tests import fresh, pages
from trainyard.client.cli import app

BLOCKS = pages.blocks()
SHELL = [block for block in BLOCKS if block.language == "sh"]
SENTENCE = "Run commands in the checkout, after `source .venv/bin/activate`."
# For a project with the package installed, without a checkout.
PROJECTS = {"docs/box.md"}
PARSERS = {
    "engine": engine.cli._parser,
    "infra.operate.drift": infra.operate.drift.__main__._parser,
    "infra.operate.reap": infra.operate.reap._parser,
    "infra.operate.review": infra.operate.review.__main__._parser,
}
# Their first block lists commands with their options.
USAGES = {"docs/commands.md", "docs/engine.md"}
COMMAND = re.compile(
    r"\$ |(sudo|make|train|python|docker|kubectl|git|ssh|curl|pip|export|source)\b "
)
MAKEFILE = (pages.ROOT / "Makefile").read_text()


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_says_what_it_is_and_a_shell_block_where_it_runs(block):
    assert block.language in pages.LANGUAGES, "write the language after the fence: sh, text, …"
    if block.language == "sh" and block.place is not None:
        assert block.place in pages.PLACES, "no test runs blocks of this place"
    if block.language != "sh":
        assert block.place == pages.CHECKOUT, "only shell blocks have marks"


@pytest.mark.parametrize("test", {block.about for block in SHELL if block.kind == "read by"})
def test_a_test_that_a_mark_names_uses_all_of_its_blocks(test):
    nodes = [*ast.walk(ast.parse((pages.ROOT / test).read_text()))]
    (names,) = (
        [name.id for name in ast.walk(node.targets[0]) if isinstance(name, ast.Name)]
        for node in nodes
        if isinstance(node, ast.Assign) and ast.unparse(node.value) == "pages.read_by(__file__)"
    )
    assert len(names) == len(pages.read_by(str(pages.ROOT / test)))
    used = {node.id for node in nodes if isinstance(node, ast.Name) and type(node.ctx) is ast.Load}
    assert used >= {*names}


def test_text_is_what_a_program_prints_or_how_it_is_used():
    for block in BLOCKS:
        if block.language == "text" and block.page not in USAGES:
            for line in block.text.splitlines():
                assert not COMMAND.match(line), f"{block}: make it a block of sh"


def test_the_readme_links_to_all_pages():
    assert {*pages.PAGES} >= {*pages.ROOT.glob("docs/*.md"), pages.ROOT / "CONTRIBUTING.md"}


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.name)
def test_a_link_is_named_after_what_it_is_about(page):
    assert re.findall(r"\[[\w/-]+\.md\]\(", page.read_text()) == []


def test_a_mark_that_is_not_understood_is_an_error(tmp_path):
    text = "<!-- not run -->\n```sh\nmake\n```\n"
    with pytest.raises(ValueError, match=r"page\.md:1: .*not run"):
        list(pages.parse(Path("page.md"), text))
    text = "- item\n\n  <!-- not run: a reason -->\n  ```sh\n  make up\n  ```\n\n      make\n"
    first, second = pages.parse(Path("page.md"), text)
    assert (first.kind, first.about, first.commands) == ("not run", "a reason", [["make", "up"]])
    assert (second.language, second.place) == ("", pages.CHECKOUT)
    for mark, place in (("run", pages.CHECKOUT), ("run in docker", "docker")):
        (block,) = pages.parse(Path("p"), f"<!-- {mark} until: it is up -->\n```sh\nmake\n```\n")
        assert (block.kind, block.about, block.place) == ("run until", "it is up", place)


@pytest.mark.parametrize(("place", "file"), pages.PLACES.items())
def test_what_runs_the_blocks_of_a_place_is_there(place, file):
    found = [block for block in SHELL if block.place == place]
    assert found
    text = file.read_text()
    if file.suffix == ".py":
        assert f'blocks_of("{place}")' in text or f"blocks_of({place.upper()})" in text
    else:
        for block in found:
            for line in block.text.splitlines():
                # Its packages are read from the page, and installed before anything runs.
                assert line in text or fresh.INSTALL.match(line), block


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_commands_are_those_of_the_checkout_and_parse(block):
    assert ".venv/bin/" not in block.text.replace("source .venv/bin/activate", "")
    text = (pages.ROOT / block.page).read_text()
    bare = {"train", "python", "ray"} & {words[0] for words in block.commands}
    if bare and block.page not in PROJECTS:
        assert SENTENCE in text or "source .venv/bin/activate\n" in text
    for words in block.commands:
        _check(words)


def _check(words: list[str]) -> None:
    """Check what a command names without running it.

    Raises:
        AssertionError: it names something that does not exist.
    """
    if words[0] == "train":
        _check_train(words[1:])
    elif words[0] == "make":
        targets = [word for word in words[1:] if "=" not in word]
        assert targets, words
        for target in targets:
            assert re.search(rf"^[\w -]*\b{target}\b[\w -]*:( |$)", MAKEFILE, re.MULTILINE), words
        for name in (word.partition("=")[0] for word in words[1:] if "=" in word):
            assert re.search(rf"\$\({name}\b|\$\(if \$\({name}\)", MAKEFILE), words
    elif words[:2] == ["python", "-m"]:
        _check_module(words[2], words[3:])
    elif words[0] == "python" and words[1].endswith(".py") and "/" in words[1]:
        places = (pages.ROOT, pages.ROOT / "train", pages.ROOT / "trainyard/quickstart/project")
        assert any((place / words[1]).is_file() for place in places), words


def _check_train(words: list[str]) -> None:
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        name, *words = words
        assert name in command.commands, f"train {name} does not exist"
        command = command.commands[name]
    if command.ignore_unknown_options:  # passed on to the engine
        PARSERS["engine"]().parse_args([command.name, *words])
    command.make_context(command.name, words)  # raises where it does not know an option


def _check_module(name: str, words: list[str]) -> None:
    path = pages.ROOT / name.replace(".", "/")
    assert path.is_dir() or path.with_suffix(".py").is_file(), f"python -m {name} does not exist"
    if name in PARSERS:
        PARSERS[name]().parse_args(words)


def test_each_command_of_the_engine_is_in_its_list():
    usage = next(block for block in BLOCKS if block.page == "docs/engine.md")
    lines = [line.split()[3:] for line in usage.text.splitlines() if line.startswith("python")]
    named = {name for words in lines for name in words[0].split("|")}
    (commands,) = engine.cli._parser()._subparsers._group_actions  # type: ignore[union-attr]
    assert named == set(commands.choices)


def test_each_command_of_train_is_in_its_list():
    overview = next(block for block in BLOCKS if block.page == "docs/commands.md")
    usages = [re.split(r"  +", line)[0] for line in overview.text.splitlines()]
    named = {name for usage in usages for name in re.findall(r"(?:^train|\|) ([a-z-]+)", usage)}
    assert named == set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def test_a_terminal_goes_on_where_a_block_ended_and_fails_with_a_command(tmp_path):
    user = pages.Terminal(tmp_path, {"PATH": os.environ["PATH"]}, {"8265": "9", "-s dev": "-s x"})
    user.run(pages.Block("p", 1, "sh", "mkdir -p a && cd a\nexport WORD='two words'\n"))
    words = user.run(
        pages.Block("p", 2, "sh", 'basename "$PWD"\necho "$WORD" :8265 18265 -s dev\n')
    )
    assert words == "a\ntwo words :9 18265 -s x\n"
    for text in ("false\ntrue\n", "false | true\n", 'echo "$UNKNOWN"\n'):
        with pytest.raises(AssertionError, match="p:3 ended with 1"):
            user.run(pages.Block("p", 3, "sh", text))


def test_a_terminal_ends_a_block_by_ctrl_c_once_its_words_are_printed(tmp_path):
    user = pages.Terminal(tmp_path, {"PATH": os.environ["PATH"]})
    # One long sleep would miss a signal that comes while bash forks it, and bash waits for its end.
    waits = "echo ready; while true; do sleep 0.1; done"
    assert user.run(pages.Block("p", 1, "sh", waits, "run until", "ready")).startswith("ready\n")
    well = f"""bash -c 'trap "exit 0" INT; {waits}'\n"""
    assert user.run(pages.Block("p", 1, "sh", well, "run until", "ready")).startswith("ready\n")
    with pytest.raises(AssertionError, match="did not print"):
        user.run(pages.Block("p", 2, "sh", "true\n", "run until", "ready"))
