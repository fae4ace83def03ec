"""The real program as the pulumi CLI runs it, from nothing and in turn with the embedded engine."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]


def test_a_stack_from_nothing_changes_hands_without_a_change(
    declare_stack: Callable[..., Any],
    started_below: Callable[[Path], list[Any]],
    either: Callable[..., Any],
) -> None:
    stack = declare_stack(copied=True, objectStore="directory")
    pulumi = partial(either, stack)

    pulumi("up", "--yes")
    theirs = stack.resources()
    stack.engine("preview", "--refresh", "--expect-no-changes")
    pulumi("up", "--yes", "--expect-no-changes")
    stack.engine("destroy", "--yes")
    assert started_below(stack.folder) == []

    stack.engine("up", "--yes")
    assert stack.resources() == theirs
    pulumi("refresh", "--yes", "--expect-no-changes")
    pulumi("destroy", "--yes")
    assert started_below(stack.folder) == []
    assert stack.resources() == {}


def test_a_module_in_the_working_folder_hides_pythons_own(
    declare_stack: Callable[..., Any],
) -> None:
    # What the bench is for: infra/resource.py broke every `pulumi up` from nothing, unseen.
    stack = declare_stack(copied=True, objectStore="directory")
    (stack.project / "infra" / "resource.py").touch()
    done = stack.bench("up", "--yes", "--skip-preview", check=False)
    assert done.returncode == 1
    assert "local-supervisor" in done.stdout
    assert "module 'resource' has no attribute 'getrlimit'" in done.stdout
