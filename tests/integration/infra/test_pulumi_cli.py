"""The real program under the pulumi CLI, which takes the stack over from the engine and back."""

import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.integration,
    pytest.mark.pulumi,
    pytest.mark.skipif(shutil.which("pulumi") is None, reason="the pulumi CLI is not on PATH"),
    pytest.mark.timeout(300),
]


def test_the_stack_changes_hands_without_a_change(
    declare_stack: Callable[..., Any],
    started_below: Callable[[Path], list[Any]],
    pulumi_cli: Callable[..., str],
) -> None:
    stack = declare_stack(objectStore="directory")
    for folder in (stack.project, stack.project / "infra"):
        (folder / ".venv").symlink_to(sys.prefix)

    pulumi = partial(pulumi_cli, stack.project, stack.environment, "test")

    stack.engine("up", "--yes")
    pulumi("preview", "--expect-no-changes")
    pulumi("refresh", "--yes", "--expect-no-changes")
    pulumi("destroy", "--yes")
    assert started_below(stack.folder) == []
    pulumi("up", "--yes")
    stack.engine("up", "--yes", "--refresh", "--expect-no-changes")
    assert stack.outputs()["dashboardUrl"] in pulumi("stack output", "--json")
    stack.engine("destroy", "--yes")
    assert started_below(stack.folder) == []
