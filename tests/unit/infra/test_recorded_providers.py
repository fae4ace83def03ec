"""States name the class of each dynamic resource: one that was written before loads, unchanged.

recorded_providers.txt has a class and what states hold of it in each line. A line is never changed:
a stack whose state holds another text could not be destroyed any more, or would show a difference.
"""

import importlib
from pathlib import Path

import pytest
from pulumi.dynamic.dynamic import serialize_provider

from engine.recorded import Recorded

ROOT = Path(__file__).parents[3]
RECORDED = [
    line.split()
    for line in Path(__file__).with_name("recorded_providers.txt").read_text().splitlines()
]


@pytest.mark.parametrize(("name", "recorded"), RECORDED, ids=[name for name, _ in RECORDED])
def test_a_provider_of_an_earlier_state_loads_and_is_recorded_alike(name, recorded):
    loaded = Recorded(ROOT / "infra", ROOT).load(recorded)  # F48: by name, in the clear
    module, _, kind = name.rpartition(".")
    assert type(loaded) is getattr(importlib.import_module(module), kind)
    assert serialize_provider(type(loaded)()) == recorded
