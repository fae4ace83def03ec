"""The table of docs/engine.md is the schema modules' table."""

from scripts import resources_page
from scripts.resources_page import BEGIN, END, PAGE


def test_the_page_has_the_resources_of_the_schemas():
    page = PAGE.read_text()
    assert resources_page.update_page(page) == page, "run `make docs`"


def test_the_table_tells_what_is_required_and_what_is_fixed():
    rows = {line.split("`")[1]: line for line in resources_page.table().splitlines()[2:]}
    assert list(rows) == [
        *("docker.Network", "docker.Volume", "docker.RemoteImage", "docker.Container"),
        *("command.remote.Command", "command.remote.CopyToRemote"),
    ]
    assert (
        '**name**, driver, ipamDriver = `"default"`, labels (**label**, **value**)'
        in (rows["docker.Network"])
    )
    assert rows["command.remote.Command"].endswith("| connection, create, delete |")


def test_everything_beside_the_table_is_kept():
    page = resources_page.update_page(f"before\n{BEGIN}old\n{END}after\n")
    assert page == f"before\n{BEGIN}{resources_page.table()}{END}after\n"
