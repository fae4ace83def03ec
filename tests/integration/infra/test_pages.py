"""The commands of the pages, in a copy of the checkout with a home of its own, as a user runs them.

The pages come in the order of the README's links, and share the stack dev.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import pytest
import yaml
from nbclient import NotebookClient
from PIL import Image

from tests import checkout, pages
from tests.git import git
from tests.pages import CHECKOUT, Block, Terminal, blocks_of
from tests.ports import free_ports

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

FOREIGN = ("RAY_", "AWS_", "TRAINYARD_", "PULUMI_", "PYTHON", "VIRTUAL_ENV", "XDG_")
STACKS = ("dev", "prod")
# Outputs of commands whose exit code does not tell: curl's is 0 for every answer.
PRINTED = {"docs/serve.md": '{"predictions":[{"class":'}


def _set_ports(project: Path, base: Path) -> dict[str, str]:
    """Move the stacks of the checkout to free ports; these, by those of the pages."""
    moved = {}
    declared = yaml.safe_load((project / "Pulumi.yaml").read_text())["config"]
    defaults = {key: entry["default"] for key, entry in declared.items() if key.endswith("Port")}
    for stack in STACKS:
        file = project / f"Pulumi.{stack}.yaml"
        settings = yaml.safe_load(file.read_text())["config"]
        # The last one's successors are those of the workers' agents.
        keys = sorted(defaults, key=lambda key: key == "agentPort")
        for key, port in zip(keys, free_ports(len(keys) + 2), strict=False):
            if stack == "dev":
                moved[str(defaults[key])] = str(port)
            settings[f"trainyard:{key}"] = port
        settings["trainyard:stateDir"] = str(base / stack)
        file.write_text(yaml.safe_dump({"config": settings}))
    return moved


@pytest.fixture(scope="module")
def terminal(store_program, started_below) -> Iterator[Callable[[], Terminal]]:
    """Open a terminal in the checkout, whose stack is up; nothing is left afterwards."""
    base = Path(tempfile.mkdtemp(prefix="ty", dir="/tmp"))
    project, home = checkout.copy(base / "trainyard"), base / "home"
    home.mkdir()
    ports = _set_ports(project, base)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
    cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))  # of the store's program
    environment |= {"HOME": str(home), "XDG_CACHE_HOME": cache, "RAY_USAGE_STATS_ENABLED": "0"}
    environment |= {"RAY_TMPDIR": str(base / "r")}  # of a Ray that a script starts here
    for name in ("a.jpg", "b.jpg"):  # "send it images"
        Image.new("L", (32, 32), 90).save(project / name)
    for command in ("init -q -b main", "add -A", "commit -qm Checkout"):
        git(project, *command.split())

    def opened() -> Terminal:
        return Terminal(project, environment, ports)

    try:
        opened().run(Block("README.md", 0, "sh", "make up"))
        yield opened
        for stack in STACKS:
            if (base / stack).exists():
                opened().run(Block("README.md", 0, "sh", f"make down FORCE=1 STACK={stack}"))
            assert started_below(base / stack) == []
            assert not (base / stack).exists()
    finally:
        for stack in STACKS:
            for process in started_below(base / stack):
                process.kill()
        shutil.rmtree(base, ignore_errors=True)


@pytest.mark.parametrize(("page", "blocks"), blocks_of(CHECKOUT).items())
def test_the_commands_of_a_page(page, blocks, terminal):  # B7
    user = terminal()
    printed = user.run(pages.SOURCED)
    settings = user.folder / "Pulumi.dev.yaml"
    before = settings.read_bytes()
    for block in blocks:
        printed += user.run(block)
    assert PRINTED.get(page, "") in printed
    if settings.read_bytes() != before:
        user.run(Block(page, 0, "sh", "make preview"))  # which accepts what the page has set
        settings.write_bytes(before)


def test_the_notebook_that_sets_the_course_up_runs(terminal):  # D6
    user = terminal()
    notebook = nbformat.read(user.folder / "docs/course.ipynb", as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert re.findall(r"^(\w+) = ", cells[0].source, re.MULTILINE) == ["ACCELERATOR", "STACK"]
    cells[0].source = 'ACCELERATOR, STACK = "none", "dev"'
    client = NotebookClient(notebook, resources={"metadata": {"path": str(user.folder / "docs")}})
    client.execute(env=user.environment)
    shown = ["".join(output.get("text", "") for output in cell.outputs) for cell in cells]
    assert re.search(r"Ray dashboard .*http://127\.0\.0\.1:\d+", "\n".join(shown), re.MULTILINE)
    assert any(re.search(r"^nodes +3$", text, re.MULTILINE) for text in shown), shown
