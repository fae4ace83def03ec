"""The form in which benchmarks run: in full, or the smallest that shows that they work."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any, TypeVar

from bench.scratch import ScratchStack, scratch_stack

T = TypeVar("T")
# Nodes of a stack of the smallest form, whatever a benchmark asks for: enough for each of them, so
# that they share one.
SMALLEST = {"workers": 1, "worker": {"cpus": 3}}


class Form:
    """Full, or smallest: each way once, with little data, and stacks that are shared.

    Attributes:
        smallest: whether it is the smallest; its figures say nothing.
    """

    def __init__(self, *, smallest: bool) -> None:
        self.smallest = smallest
        self._stacks: dict[str, ScratchStack] = {}
        self._open = contextlib.ExitStack()

    def __enter__(self) -> "Form":
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    def rounds(self, count: int) -> int:
        """Return the counted rounds of `in_turn`."""
        return self.pick(count, 0)

    def pick(self, full: T, smallest: T) -> T:
        """Return the value for this form."""
        return smallest if self.smallest else full

    @contextlib.contextmanager
    def stack(self, **settings: Any) -> Iterator[ScratchStack]:
        """Yield a stack of processes that is up; in the smallest form the next one uses it too."""
        if self.smallest and "nodeGroups" not in settings:
            settings |= SMALLEST
        key = json.dumps(settings, sort_keys=True)
        if key in self._stacks:
            yield self._stacks[key]
            return
        with contextlib.ExitStack() as own:
            stack = (self._open if self.smallest else own).enter_context(scratch_stack(**settings))
            stack.engine("up", "--yes")
            if self.smallest:
                self._stacks[key] = stack
            yield stack
