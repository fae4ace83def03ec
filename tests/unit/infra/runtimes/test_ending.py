"""The timer of a reservation, by a clock that the tests give; the rest needs a supervisord."""

from infra.runtimes import ending


class Clock:
    """A clock that somebody sets while the timer sleeps."""

    def __init__(self, *jumps: float) -> None:
        self.now, self._jumps, self.slept = 1000.0, list(jumps), 0.0

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert 0 < seconds <= ending.LOOK_SECONDS
        self.slept += seconds
        self.now += seconds + (self._jumps.pop(0) if self._jumps else 0)


def test_the_timer_follows_the_clock_of_its_machine() -> None:  # D3
    for jumps, slept in (((), 10), ((0, 0, 7), 3), ((3600,), 1), ((0, -60), 70)):
        clock = Clock(*jumps)
        looks: list[int] = []
        ending.wait_until(1010.0, lambda looks=looks: looks.append(1), clock.time, clock.sleep)
        assert clock.slept == len(looks) == slept, jumps
    clock = Clock()
    ending.wait_until(999.0, clock=clock.time, sleep=clock.sleep)  # after a kill past the end
    assert clock.slept == 0
