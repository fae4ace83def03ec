"""A drift report on a real stack: changes by hand are reported, and nothing is changed."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.runtimes import folders
from infra.runtimes.supervisor import Supervisor

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def stack(stack_with_minio: Any) -> Any:
    return stack_with_minio


@contextlib.contextmanager
def _unchanged(stack: Any) -> Iterator[None]:
    def files() -> dict[str, bytes]:
        folder: Path = stack.backend.folder
        return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    before = files()
    yield
    assert files() == before


def _report(stack: Any) -> tuple[int, dict[tuple[str, str], str]]:
    """The exit code, and the findings, by layer and name."""
    with _unchanged(stack):
        done = stack.drift("--json")
    report = json.loads(done.stdout)
    assert report["failures"] == []
    found = {(each["layer"], each["name"]): each["found"] for each in report["findings"]}
    return done.returncode, found


def test_what_was_changed_by_hand_is_found_and_mended(
    stack: Any, wait_for: Callable[..., Any], tmp_path: Path
) -> None:
    assert _report(stack) == (0, {})
    daemon = Supervisor(folder=stack.folder, mark=folders.read(stack.folder))
    with daemon._rpc() as supervisord:
        supervisord.stopProcess("ray-worker-0")
    scrape = next((stack.folder / "prometheus").rglob("prometheus.yml"))
    scrape.write_text(f"{scrape.read_text()}# by hand\n")
    found: dict[tuple[str, str], str] = {}

    def ray_has_noticed() -> bool:
        nonlocal found
        code, found = _report(stack)
        return code == 2 and ("Ray nodes", "ray-worker-0") in found

    wait_for(ray_has_noticed, 60)
    assert found["services", "local-ray-worker-0"] == "it is stopped"
    assert found["services", "local-prometheus"] == "its files were changed by hand"
    assert len(found) == 3, found
    secrets = stack.outputs()
    shown = "".join(stack.said[-3:])
    assert secrets["rayToken"] not in shown
    assert secrets["secretKey"] not in shown
    # The reviewed steps are the executed ones, on real services too.
    plan = str(tmp_path / "plan.json")
    rules = str(ROOT / "infra/policy")
    text = stack.engine("preview", "--refresh", "--save-plan", plan, "--policy-pack", rules).stdout
    assert "(advisory)" not in text
    stack.engine("up", "--yes", "--refresh", "--plan", plan, "--policy-pack", rules)
    wait_for(lambda: _report(stack) == (0, {}), 60)
