"""The course's pages: the differences of its scripts, and what its page says."""

import re

import pytest
from ray.train.torch import TorchTrainer
from ray.tune import TuneError, Tuner

from tests import course_page

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
