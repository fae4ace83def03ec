"""The examples of plain Ray tasks, as far as they need no Ray."""

import sys
from types import SimpleNamespace

import pytest

from trainyard.jobs import cpu_example, inspect_cluster, tpu_example


@pytest.mark.parametrize("job", [cpu_example, tpu_example])
@pytest.mark.parametrize("given", ["0", "1001", "-1", "many", ""])
def test_an_amount_out_of_bounds_is_refused_before_ray_is_asked(job, given, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["example.py", given])
    monkeypatch.setattr(job.ray, "init", lambda **_: pytest.fail("asked"))
    with pytest.raises(SystemExit) as caught:
        job.main()
    assert caught.value.code == 2
    assert f"{given}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("job", "function", "result", "needs"),
    [
        (cpu_example, "work", 0, {"num_cpus": 1}),  # B7 B8
        (tpu_example, "run_tpu", (0, "cpu", 2.0), {"num_cpus": 0, "resources": {"TPU": 4}}),  # B13
    ],
)
def test_ray_has_every_task_before_any_result_is_awaited(job, function, result, needs, monkeypatch):
    """So tasks overlap wherever there is room for two: Ray alone decides how many run at once."""
    assert getattr(job, function)._default_options == needs
    sent: list[int] = []

    def get(tasks):
        assert sent == [*range(10)]
        return [result for _ in tasks]

    def wait(tasks, **_):
        return get(tasks) and (tasks, [])

    task = SimpleNamespace(remote=lambda number: sent.append(number) or number)
    totals = {"init": lambda **_: None, "cluster_resources": lambda: {"TPU": 4.0}}
    monkeypatch.setattr(job, "ray", SimpleNamespace(get=get, wait=wait, **totals))
    monkeypatch.setattr(job, function, task)
    monkeypatch.setattr(sys, "argv", ["example.py", "10"])
    job.main()


def test_all_of_the_cluster_is_printed(monkeypatch, capsys):  # B12
    totals = {"CPU": 112.0, "memory": 1.5 * 2**30, "GPU": 2.0, "TPU": 4.0}
    answers = {"nodes": lambda: [{"Alive": True}] * 2, "cluster_resources": lambda: totals}
    ray = SimpleNamespace(init=lambda **_: None, **answers)
    monkeypatch.setattr(inspect_cluster, "ray", ray)
    inspect_cluster.main()
    printed = " ".join(capsys.readouterr().out.split())
    assert printed == "nodes 2 CPUs 112 memory 1.5 GiB GPUs 2 TPU chips 4"


def test_a_chips_matrix_is_of_its_number():  # B14
    number, device, total = tpu_example.run_tpu._function(7)
    assert (number, device) == (7, "cpu")
    assert total == tpu_example.run_tpu._function(7)[2]
    assert total == pytest.approx(1000**3 / 4, rel=0.01)  # the mean of a product is a quarter
