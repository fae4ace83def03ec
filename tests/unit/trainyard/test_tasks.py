"""The examples of plain Ray tasks, as far as they need no Ray."""

import sys

import pytest

from trainyard.jobs import cpu_example, tpu_example


@pytest.mark.parametrize("job", [cpu_example, tpu_example])
@pytest.mark.parametrize("given", ["0", "1001", "-1", "many", ""])
def test_an_amount_out_of_bounds_is_refused_before_ray_is_asked(job, given, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["example.py", given])
    monkeypatch.setattr(job.ray, "init", lambda **_: pytest.fail("asked"))
    with pytest.raises(SystemExit) as caught:
        job.main()
    assert caught.value.code == 2
    assert f"{given}" in capsys.readouterr().err


def test_a_chips_matrix_is_of_its_number():  # B14
    number, device, total = tpu_example.run_tpu._function(7)
    assert (number, device) == (7, "cpu")
    assert total == tpu_example.run_tpu._function(7)[2]
    assert total == pytest.approx(1000**3 / 4, rel=0.01)  # the mean of a product is a quarter
