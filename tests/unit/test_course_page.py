"""The course's pages: the differences of its scripts, and what its page says."""

import re
import runpy
from argparse import ArgumentParser
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from ray.train.torch import TorchTrainer
from ray.tune import TuneError, Tuner

from tests import course_page
from trainyard import counted_gpus, job

PAGE = course_page.PAGE.with_name("course.md").read_text()
PICTURE = course_page.PAGE.with_name("course.svg").read_text()


def test_the_page_shows_the_scripts_of_today():
    assert course_page.PAGE.read_text() == course_page.page(), "run `make docs`"


@pytest.mark.parametrize(
    ("part", "drawn"),
    [
        ("Ray Cluster", "Ray Cluster"),
        ("Ray Train", "Ray Train"),
        ("Ray Tune", "Ray Tune"),
        ("Ray Data", "Ray Data"),
        ("Ray Serve", "Ray Serve"),
        ("Object store", "object store"),
        ("Prometheus", "Prometheus"),
        ("Grafana", "Grafana"),
        ("Jupyter", "Jupyter"),
    ],
)
def test_each_part_of_the_system_is_explained_and_drawn(part, drawn):  # D15
    assert re.search(rf"^\| {part} \| [^|]+ \| [^|]+ \|$", PAGE, re.MULTILINE)
    assert f">{drawn}<" in PICTURE


def test_the_page_warns_of_jobs_that_share_a_gpu():  # D45
    warning = (
        "Ray does not enforce the half. Jobs that together exceed a GPU's memory crash each other."
    )
    assert warning in PAGE.replace("\n", " ")


def test_a_trainer_in_a_tuner_fails_as_the_page_says():  # D53
    with pytest.raises(TuneError) as error:
        Tuner(TorchTrainer(print), param_space={"train_loop_config": {}})
    assert f"ray.tune.error.TuneError: {error.value}\n" in PAGE


def test_what_a_reader_edits_in_the_script_takes_precedence(monkeypatch, tmp_path):  # D41 D43
    script = (course_page.PAGE.parents[1] / "training/food11/train_ray.py").read_text()
    lines = r"( +scaling_config=ScalingConfig\(\n.*?\n            \),\n)"
    (edited,) = re.findall(rf"```text\n{lines}```", PAGE, re.DOTALL)
    (own,) = re.findall(lines, script, re.DOTALL)
    found: list[Any] = []

    def recorded(_: str, parser: ArgumentParser, **__: Any) -> Any:
        arguments = vars(parser.parse_args(["--num-workers=3"]))
        return nullcontext((SimpleNamespace(name="two", storage="/"), arguments))

    monkeypatch.setattr(job, "recorded_run", recorded)
    monkeypatch.setattr(counted_gpus, "torch_config", lambda **_: None)  # asks a cluster
    monkeypatch.setattr(TorchTrainer, "fit", lambda it: found.append(it.scaling_config))
    for text in (script, script.replace(own, edited)):
        (copy := tmp_path / "train_ray.py").write_text(text)
        runpy.run_path(str(copy), run_name="__main__")
    asked = [(each.num_workers, each.use_gpu, each.resources_per_worker) for each in found]
    assert asked == [(count, True, {"GPU": 1, "CPU": 8}) for count in (3, 2)]
