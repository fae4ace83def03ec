"""Schedules of a run that goes on, next to those of a run that was never interrupted."""

import io
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import SWALR

from trainyard.errors import JobError
from trainyard.resume import optimizer_settings as settings

Made = Callable[[Optimizer, int, float], Any]
"""Makes a scheduler from the optimizer, the length of the run in steps and the rate."""


def warmed(then: Made, optimizer: Optimizer, steps: int, rate: float) -> LRScheduler:
    """A warm-up for half of the steps, then another schedule."""
    first = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=steps // 2)
    parts = [first, then(optimizer, steps - steps // 2, rate)]
    return lr_scheduler.SequentialLR(optimizer, parts, [steps // 2])


def cosine(optimizer: Optimizer, steps: int, _: float) -> LRScheduler:
    return lr_scheduler.CosineAnnealingLR(optimizer, steps, 1e-4)


def chained(optimizer: Optimizer, steps: int, rate: float) -> LRScheduler:
    parts = [lr_scheduler.StepLR(optimizer, steps // 3), warmed(cosine, optimizer, steps, rate)]
    return lr_scheduler.ChainedScheduler(parts)


class Own:
    """A schedule of a user, which has no base class and counts by itself."""

    def __init__(self, optimizer: Optimizer, steps: int, rate: float) -> None:
        self.optimizer, self.rate, self.steps, self.done = optimizer, rate, steps, 0

    def step(self) -> None:
        self.done += 1
        self.optimizer.param_groups[0]["lr"] = self.rate * (1 - self.done / self.steps)

    def state_dict(self) -> dict[str, Any]:
        return {"rate": self.rate, "steps": self.steps, "done": self.done}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


MAKERS: dict[str, Made] = {
    "LambdaLR": lambda o, n, _: lr_scheduler.LambdaLR(o, lambda step: 1 - step / (2 * n)),
    "MultiplicativeLR": lambda o, n, _: lr_scheduler.MultiplicativeLR(o, lambda _: 1 - 1 / n),
    "StepLR": lambda o, n, _: lr_scheduler.StepLR(o, n // 4, 0.5),
    "MultiStepLR": lambda o, n, _: lr_scheduler.MultiStepLR(o, [n // 4, n // 2]),
    "ConstantLR": lambda o, n, _: lr_scheduler.ConstantLR(o, 0.5, n // 2),
    "LinearLR": lambda o, n, _: lr_scheduler.LinearLR(o, 1.0, 0.1, n),
    "ExponentialLR": lambda o, n, _: lr_scheduler.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda o, n, _: lr_scheduler.PolynomialLR(o, n, 2.0),
    "CosineAnnealingLR": cosine,
    "CosineAnnealingWarmRestarts": lambda o, n, _: lr_scheduler.CosineAnnealingWarmRestarts(
        o, n // 3, 2
    ),
    "CyclicLR": lambda o, n, rate: lr_scheduler.CyclicLR(o, rate / 10, rate, n // 4),
    "OneCycleLR": lambda o, n, rate: lr_scheduler.OneCycleLR(o, rate, n),
    "SWALR": lambda o, n, rate: SWALR(o, rate / 2, n // 2),
    "SequentialLR": partial(warmed, cosine),
    "ChainedScheduler": chained,
}


class Run:
    """A model that is trained; `saved` is its state in a file, as a checkpoint has it."""

    def __init__(
        self, make: Made, steps: int, rate: float, saved: bytes = b"", workers: int = 1
    ) -> None:
        self.optimizer = torch.optim.SGD([torch.ones(1)], lr=rate, momentum=0.9)
        self.scheduler = make(self.optimizer, steps, rate)
        parts = {"optimizer": self.optimizer, "scheduler": self.scheduler}
        self.asked = settings.current_settings(parts) | {
            settings.START: [{"epochs": steps, "workers": workers}]
        }
        made = settings.schedulers(parts)
        if saved:
            state = torch.load(io.BytesIO(saved), weights_only=True)
            for name, part in parts.items():
                part.load_state_dict(state[name])
            settings.apply(parts, state["asked"], self.asked, made)
        self.parts = parts

    def rates(self, steps: int, *measured: float) -> list[tuple[float, float]]:
        """Rate and momentum of each of the next steps."""
        found = []
        for _ in range(steps):
            (group,) = self.optimizer.param_groups
            found.append((group["lr"], group["momentum"]))
            self.optimizer.step()
            self.scheduler.step(*measured)
        return found

    def saved(self) -> bytes:
        file = io.BytesIO()
        state = {name: part.state_dict() for name, part in self.parts.items()}
        torch.save(state | {"asked": self.asked}, file)
        return file.getvalue()


@pytest.mark.parametrize(("steps", "rate"), [(12, 0.1), (12, 0.01), (24, 0.1), (24, 0.02)])
@pytest.mark.parametrize("name", MAKERS)
def test_a_schedule_goes_on_as_one_that_was_never_interrupted(name, steps, rate):  # F72
    first = Run(MAKERS[name], 12, 0.1)
    first.rates(7)
    whole = Run(MAKERS[name], steps, rate).rates(steps)
    again = Run(MAKERS[name], steps, rate, first.saved())
    for (found, momentum), (lr, expected) in zip(again.rates(steps - 7), whole[7:], strict=True):
        assert (found, momentum) == pytest.approx((lr, expected))


def test_each_scheduler_of_torch_is_among_them():
    known = {
        name for name in lr_scheduler.__all__ if name.endswith(("LR", "Restarts", "Scheduler"))
    }
    assert known - {"LRScheduler"} <= MAKERS.keys()


def test_a_rate_that_follows_a_measurement_is_scaled():  # F72
    def plateau(optimizer: Optimizer, steps: int, _: float) -> Any:
        return lr_scheduler.ReduceLROnPlateau(optimizer, patience=steps // 6, factor=0.5)

    first = Run(plateau, 6, 0.1)
    first.rates(4, 1.0)
    assert first.scheduler.num_bad_epochs == 1
    again = Run(plateau, 12, 0.01, first.saved())
    assert [rate for rate, _ in again.rates(4, 1.0)] == pytest.approx(
        [0.005, 0.005, 0.0025, 0.0025]
    )


def test_a_schedule_of_a_user_keeps_its_progress():  # F72
    first = Run(Own, 12, 0.1)
    first.rates(6)
    again = Run(Own, 24, 0.01, first.saved())
    assert [rate for rate, _ in again.rates(3)] == pytest.approx(
        [0.005, 0.01 * 17 / 24, 0.01 * 16 / 24]
    )


def fixed(steps: int, optimizer: Optimizer, _: int, rate: float) -> LRScheduler:
    """A schedule with a length that does not follow from the run's."""
    return lr_scheduler.OneCycleLR(optimizer, rate, steps)


@pytest.mark.parametrize("make", [partial(fixed, 12), partial(warmed, partial(fixed, 6))])
def test_a_schedule_that_ends_before_the_run_is_refused(make):  # F72
    run = Run(make, 12, 0.1)
    run.rates(6)
    settings.check_length(run.parts, 1.0)
    with pytest.raises(
        JobError, match=r"scheduler \(\w+\) is too short .*number of total steps is \d+\)"
    ):
        settings.check_length(run.parts, 3.0)
    assert run.rates(6)  # it was not touched
    with pytest.raises(JobError, match="make it longer in the script, ask for fewer epochs, or"):
        settings.check_length(run.parts, 0.0)


def test_a_schedule_that_is_shorter_now_is_refused():  # F72
    first = Run(MAKERS["OneCycleLR"], 12, 0.1)
    first.rates(7)
    with pytest.raises(
        JobError, match=r"scheduler \(OneCycleLR\) .* number of total steps is 6\): make"
    ):
        Run(MAKERS["OneCycleLR"], 6, 0.1, first.saved())


@pytest.mark.parametrize("name", ["OneCycleLR", "CosineAnnealingLR"])
def test_a_schedule_goes_on_with_more_workers(name):  # F61 F72
    first = Run(MAKERS[name], 12, 0.1)
    first.rates(7)
    saved, later = first.saved(), first.rates(3)
    # Twice the workers take half of the steps.
    again = Run(MAKERS[name], 6, 0.1, saved, workers=2)
    assert [lr for lr, _ in again.rates(3)] == pytest.approx([lr for lr, _ in later])


def test_a_state_with_tensors_can_be_compared():  # F72
    one, other = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0])
    assert settings._same(one, one.clone())
    assert not settings._same(one, other)
