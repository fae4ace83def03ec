"""The real program as the pulumi CLI runs it, from nothing and in turn with the embedded engine."""

import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def stack(stack_with_minio: Any) -> Any:
    return stack_with_minio


def test_a_stack_from_nothing_changes_hands_without_a_change(
    declare_stack: Callable[..., Any],
    started_below: Callable[[Path], list[Any]],
    either: Callable[..., Any],
    stack: Any,
    settled: Callable[..., Any],
) -> None:
    other = declare_stack(copied=True, objectStore="directory")
    pulumi = partial(either, other)

    pulumi("up", "--yes")
    theirs = other.resources()
    other.engine("preview", "--refresh", "--expect-no-changes")
    pulumi("up", "--yes", "--expect-no-changes")
    other.engine("destroy", "--yes")
    assert started_below(other.folder) == []

    other.engine("up", "--yes")
    assert other.resources() == theirs
    outputs = other.outputs()
    assert outputs["storageUrl"] == f"file://{other.data}/storage"
    assert outputs["objectStoreEndpoint"] == ""
    _run_side_by_side(stack.outputs(), outputs, settled)
    pulumi("refresh", "--yes", "--expect-no-changes")
    pulumi("destroy", "--yes")
    assert started_below(other.folder) == []
    assert not other.folder.exists()
    assert other.resources() == {}
    _nodes(settled, stack.outputs())


def _run_side_by_side(
    first: dict[str, Any], second: dict[str, Any], settled: Callable[..., Any]
) -> None:
    for outputs in (first, second):
        _nodes(settled, outputs)
    request = urllib.request.Request(
        f"{first['dashboardUrl']}/api/jobs/",
        headers={"Authorization": f"Bearer {second['rayToken']}"},
    )
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(request, timeout=10)


def _nodes(settled: Callable[..., Any], outputs: dict[str, Any]) -> None:
    settled(
        SimpleNamespace(dashboard_url=outputs["dashboardUrl"], ray_token=outputs["rayToken"]), 2
    )


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
