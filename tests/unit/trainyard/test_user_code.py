"""A script that names itself in each way runs in each place as `python FILE` runs it."""

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests import ran
from trainyard import user_code

SCRIPT = """
from __future__ import annotations

import multiprocessing
import pickle
import sys
import typing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

@dataclass
class Point:
    x: int
    other: Point | None = None


def double(point: Point) -> Point:
    assert sys.modules["__main__"].Point is Point
    return Point(2 * point.x)


def check(config=None):
    import __main__
    from hydra.utils import instantiate

    point = Point(1)
    assert pickle.loads(pickle.dumps(point)) == point
    assert typing.get_type_hints(Point)["x"] is int
    assert __main__.Point is Point
    assert instantiate({"_target_": "__main__.Point", "x": 1}) == point
    assert instantiate({"_target_": f"{Path(__file__).stem}.Point", "x": 1}).x == 1
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(double, point).result() == Point(2)
    print("as plain Python")


if __name__ == "__main__":
    SEND
"""
SEND = """
    import cloudpickle

    from trainyard.search import trials
    from trainyard.sweep.points import ScriptFunction
    from ray.tune import registry
    from ray.tune.experiment import Experiment

    Experiment.register_if_needed = staticmethod(lambda trainable: trainable)
    trials.send_by_name()  # with `job.by_name`, as jobs do
    sent = {
        "trial": Experiment.register_if_needed(check),
        "sweep": ScriptFunction(("python", "-m", "my_script"), "check", 0),
    }
    for place, function in sent.items():
        Path(place).write_bytes(cloudpickle.dumps(function))
"""
NODE = """
import pickle, sys, types
import cloudpickle, ray.cloudpickle

function = cloudpickle.loads(open(sys.argv[1], "rb").read())
if sys.argv[1] == "sweep":
    assert function.find() is function.find()  # two points in one process
    function = function.find()
function({})
sent = ray.cloudpickle.dumps(sys.modules["__main__"].Point)
sys.modules["__mp_main__"] = types.ModuleType("of another process")
assert pickle.loads(sent)(3).x == 3
"""
DEV = """
import multiprocessing.process, os, sys  # the warm process has it before it enters the copy
from trainyard.dev_session import warm

os.chdir(sys.argv[1])
sys.path[0] = sys.argv[1]
sys.exit(warm._run("aa", {"command": ["python", *sys.argv[2:]], "environment": {}, "debug": False}))
"""


def python(folder: Path, *arguments: str) -> str:
    done = ran.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_script_finds_itself_in_each_place(tmp_path):  # F73
    script = tmp_path / "my_script.py"
    script.write_text(SCRIPT.replace("SEND", "check()"))
    assert python(tmp_path, script.name) == "as plain Python\n"
    for command in ([script.name], ["-m", script.stem]):
        said = python(tmp_path.parent, "-c", DEV, str(tmp_path), *command)
        assert said == "as plain Python\n"
    script.write_text(SCRIPT.replace("    SEND", SEND))
    python(tmp_path, script.name)
    for place in ("trial", "sweep"):
        assert python(tmp_path, "-c", NODE, place) == "as plain Python\n", place


@pytest.mark.parametrize(
    ("script", "defined"),
    [
        ("def train(): ...\nif __name__ == '__main__':\n    train()", True),
        ("def train(): ...\ntrain()", False),  # loading it would start it
        ("if __name__ == '__main__':\n    def train(): ...", False),
        ("train = lambda: 1\nif __name__ == '__main__': ...", False),
        (None, False),  # a notebook
    ],
)
def test_only_what_loading_a_script_defines_is_sent_by_name(  # F73
    tmp_path, script, defined, monkeypatch
):
    main = ModuleType("__main__")
    if script is not None:
        (tmp_path / "a.py").write_text(script)
        main.__file__ = str(tmp_path / "a.py")
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert user_code.is_defined("train") is defined
