"""The steps for a new cloud, in infra/places, name all that one consists of, and nothing else."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[4]
SHELF = ROOT / "tests/fakes/shelf"


def test_the_steps_for_a_new_cloud_name_each_file_of_the_smallest_one():
    _, _, steps = (ROOT / "infra/places/__init__.py").read_text().partition("To add a cloud")
    named = set(re.findall(r"`([\w/]+\.\w+)`", steps.partition('"""')[0]))
    own = {name for name in named if re.fullmatch(r"\w+\.py", name)}
    assert own == {path.name for path in SHELF.glob("*.py")} - {"__init__.py"}
    assert [name for name in named - own if not (ROOT / name).is_file()] == []
