"""The drawings of docs/: they show what the code has, and a browser shows them as they are."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from cluster import services
from infra import places
from trainyard.access.outputs import IDLE_END_URL

DOCS = Path(__file__).parents[2] / "docs"
SVG = "{http://www.w3.org/2000/svg}"


def test_the_picture_of_a_stack_has_each_place_and_service():
    root = ET.parse(DOCS / "stack.svg").getroot()
    drawn = {each.get("id") for each in root.iter(f"{SVG}g") if each.get("class") == "place"}
    assert drawn == {package.rpartition(".")[2] for package in places.PACKAGES}
    texts = " ".join("".join(each.itertext()) for each in root.iter(f"{SVG}text"))
    titles = {each.title for each in services.ENDPOINTS if each.url != IDLE_END_URL}
    assert {title for title in titles if title not in texts} == set()


def test_the_recording_is_of_the_demo_of_today():
    makefile = (DOCS.parent / "Makefile").read_text()
    recipe = makefile.partition("\ndemo: ")[2].partition("\n\n")[0]
    commands = re.findall(r"^\t\$\(BIN\)(\S+ \S+(?: \S+)?)", recipe, re.MULTILINE)
    assert len(commands) == 3
    shown = "".join(ET.parse(DOCS / "demo.svg").getroot().itertext()).replace("\xa0", " ")
    assert [each for each in commands if f".venv/bin{each}" not in shown] == [], "run `make record`"


@pytest.mark.parametrize("path", sorted(DOCS.glob("*.svg")), ids=lambda path: path.name)
def test_a_picture_needs_no_other_file(path):
    """A forge shows it as an image, without scripts and without what it names elsewhere."""
    root = ET.parse(path).getroot()
    assert not [each.tag for each in root.iter() if each.tag.endswith(("script", "foreignObject"))]
    named = re.findall(r"""(?:href|src)=["']([^"']*)|url\(([^)]*)\)""", path.read_text())
    assert {each for pair in named for each in pair if each and not each.startswith("#")} == set()
