"""The real program under the pulumi CLI, from nothing and in turn with the embedded engine."""

import contextlib
import signal
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from engine.values import secret_strings
from tests.secret_hunt import finds
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.pulumi, pytest.mark.timeout(900)]
SHORTEST = 12  # characters of a text that is unlikely by chance


@pytest.fixture(scope="module")
def stack(stack_with_minio) -> Any:
    return stack_with_minio


def test_a_stack_from_nothing_changes_hands_without_a_change(
    declare_stack, started_below, pulumi_cli, stack, settled
):
    other = declare_stack(copied=True, objectStore="directory", cli=pulumi_cli)
    assert "to create" in other.pulumi("preview")
    _kill_in_the_middle(other, started_below)
    locked = other.pulumi("up", "--yes", "--skip-preview", check=False)
    assert "the stack is currently locked" in locked
    other.pulumi("cancel", "--yes")
    other.pulumi("up", "--yes")
    other.engine("preview", "--refresh", "--expect-no-changes")
    other.pulumi("config set", "trainyard:keepData", "false")
    assert "1 updated" in other.pulumi("up", "--yes", "--skip-preview")
    other.engine("up", "--yes", "--expect-no-changes")
    theirs, secrets = other.resources(), _secrets(other)
    other.engine("destroy", "--yes")
    assert started_below(other.folder) == []

    other.engine("up", "--yes")
    assert other.resources() == theirs
    _rotate(other)
    outputs = other.outputs()
    assert outputs["storageUrl"] == f"file://{other.data}/storage"
    assert outputs["objectStoreEndpoint"] == ""
    _run_side_by_side(stack.outputs(), outputs, settled)
    other.pulumi("preview", "--expect-no-changes")
    other.pulumi("refresh", "--yes", "--expect-no-changes")
    other.pulumi("stack output")
    secrets |= _secrets(other)
    assert outputs["rayToken"] in secrets.values()
    assert finds(secrets, [("what either said", "".join(other.said).encode())]) == []
    other.pulumi("destroy", "--yes")
    assert started_below(other.folder) == []
    assert not other.folder.exists()
    assert other.resources() == {}
    other.pulumi("stack rm", "--yes")
    assert other.engine("stack", "ls", check=False).stdout == ""
    _nodes(settled, stack.outputs())


def _rotate(stack: Any) -> None:
    """Rotate Ray's token, which the cluster refuses then."""
    before = stack.outputs()
    stack.engine("config", "set", "--path", "rotated.ray-token", "1")
    assert "to update" in stack.pulumi("preview")
    stack.pulumi("up", "--yes", "--skip-preview")  # F43
    stack.engine("up", "--yes", "--expect-no-changes")
    after = stack.outputs()
    assert {key for key in after if before[key] != after[key]} == {"rayToken"}
    _refused(after, before["rayToken"])


def _kill_in_the_middle(stack: Any, started_below: Callable[[Path], list[Any]]) -> None:
    """Lose an `up` of the CLI, and all its processes, once the first services run."""
    arguments = (stack.project, stack.environment, "test", "up", "--yes", "--skip-preview")
    with stack.cli.start(*arguments) as process:
        wait_for("a service", lambda: started_below(stack.folder))
        services = {each.pid for each in started_below(stack.folder)}
        for each in [*psutil.Process(process.pid).children(recursive=True), process]:
            if each.pid not in services:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
    assert process.returncode == -signal.SIGKILL


def _secrets(stack: Any) -> dict[str, str]:
    """Texts that the state holds as secrets, by the resource."""
    return {
        f"{entry['urn']} {number}": text
        for entry in stack.state().resources
        for number, text in enumerate(secret_strings(entry))
        if len(text) >= SHORTEST
    }


def _run_side_by_side(
    first: dict[str, Any], second: dict[str, Any], settled: Callable[..., Any]
) -> None:
    for outputs in (first, second):
        _nodes(settled, outputs)
    _refused(first, second["rayToken"])


def _refused(outputs: dict[str, Any], token: str) -> None:
    url, headers = f"{outputs['dashboardUrl']}/api/jobs/", {"Authorization": f"Bearer {token}"}
    with pytest.raises(urllib.error.HTTPError, match=r"40[13]"):
        urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10)


def _nodes(settled: Callable[..., Any], outputs: dict[str, Any]) -> None:
    settled(
        SimpleNamespace(dashboard_url=outputs["dashboardUrl"], ray_token=outputs["rayToken"]), 2
    )


def test_a_module_in_the_working_folder_hides_pythons_own(declare_stack, pulumi_cli):
    # infra/resource.py broke every `pulumi up` from nothing once, unseen.
    stack = declare_stack(copied=True, objectStore="directory", cli=pulumi_cli)
    (stack.project / "infra" / "resource.py").touch()
    said = stack.pulumi("up", "--yes", "--skip-preview", check=False)
    assert "local-supervisor" in said
    assert "module 'resource' has no attribute 'getrlimit'" in said
