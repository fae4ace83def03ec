"""The commands of the pages for containers, on the lab that tests share, which has an owner."""

import nbformat
import pytest
from nbclient import NotebookClient

from tests.pages import blocks_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]


@pytest.mark.parametrize(("page", "blocks"), blocks_of("docker").items())
def test_the_commands_of_a_page(page, blocks, lab):
    user = lab.stack.terminal("lab")
    for block in blocks:
        user.run(block)


def test_the_notebook_finds_the_workers_of_an_owner(lab):  # D6
    user = lab.stack.terminal("lab")
    notebook = nbformat.read(user.folder / "docs/course.ipynb", as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    cells[0].source = 'ACCELERATOR, STACK = "none", "test"'  # containers without a GPU
    client = NotebookClient(notebook, resources={"metadata": {"path": str(user.folder / "docs")}})
    client.execute(env=user.environment)
    shown = "".join(output.get("text", "") for output in cells[-1].outputs).split()
    workers = [f"{lab.prefix}ray-worker-{number}" for number in (0, 1)]
    assert shown[::2] == workers, shown
    assert all(map(str.isdecimal, shown[1::2])), shown  # what their `nproc` says
