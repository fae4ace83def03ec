"""`make rotate` on a stack of processes, while a run trains: real Ray, Serve, store and MLflow."""

import json
import re
import subprocess
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cluster.object_store import STORES
from cluster.store_kind import Keys
from tests import pages, ran, status, stores
from tests.integration.infra import drained, served
from trainyard.access import settings_file
from trainyard.client import outputs as contract
from trainyard.client.job_server import JobServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

RUN = "rotated"
SEARCH = "/api/2.0/mlflow/experiments/search?max_results=9"
(COMMANDS,) = pages.read_by(__file__)
LIST, STORE, (*RAY, FORCED) = COMMANDS.of("make")


@pytest.fixture(scope="module")
def stack(bring_up, store_program) -> Iterator[Any]:
    with bring_up(copied=True, objectStore="versitygw", tracking="mlflow") as stack:
        stack.terminal("dev")  # `make` reads its states
        yield stack


def _make(stack: Any, *arguments: str, code: int = 0) -> str:
    done = ran.run(
        ["make", *arguments, "STACK=test"],
        cwd=stack.project,
        env=stack.environment,
        stdin=subprocess.DEVNULL,
    )
    said = done.stdout + done.stderr
    stack.said.append(said)
    assert bool(done.returncode) == bool(code), said
    return said


def _status(url: str, **headers: str) -> int:
    return status.of(urllib.request.Request(url, headers=headers))


def _ray(outputs: Mapping[str, Any]) -> int:
    return _status(f"{outputs['dashboardUrl']}/api/jobs/", Authorization=_bearer(outputs, "ray"))


def _tracking(outputs: Mapping[str, Any]) -> int:
    login = b64encode(f"admin:{outputs['trackingPassword']}".encode()).decode()
    return _status(f"{outputs['trackingUrl']}{SEARCH}", Authorization=f"Basic {login}")


def _serve(outputs: Mapping[str, Any]) -> int:
    return _status(f"{outputs['serveUrl']}/nothing", Authorization=_bearer(outputs, "serve"))


def _bearer(outputs: Mapping[str, Any], which: str) -> str:
    return f"Bearer {outputs[f'{which}Token']}"


def _objects(outputs: Mapping[str, Any], keys: Keys | None = None) -> int:
    known = keys or Keys(access=outputs["accessKey"], secret=outputs["secretKey"])
    return stores.status_of(outputs["objectStoreEndpoint"], outputs["bucket"], known)


def _root(stack: Any) -> Keys:
    folder = stack.folder / next(name for name in STORES if (stack.folder / name).exists())
    user, password = (folder / "files" / f"root-{name}" for name in ("user", "password"))
    return Keys(access=user.read_text(), secret=password.read_text())


def test_secrets_are_rotated_under_a_run(stack, train, outputs_file, wait_for, tmp_path):  # F43
    def known() -> Any:
        return contract.read(None, stack.write_outputs(outputs_file.parent))

    def submit(job: Any, run: str, *arguments: str) -> Any:
        server = JobServer(known())
        done = train("submit", job.__file__, "--name", run, "--no-wait", "--", *arguments)
        said = done.communicate(timeout=120)
        assert done.returncode == 0, said
        return next(each for each in server.jobs() if each.run == run)

    def lines() -> int:
        return len(steps.read_text().split()) if steps.exists() else 0

    assert "ray-token: rotated 0 times; restarts Ray's nodes, " in _make(stack, *LIST)
    steps = tmp_path / "steps"
    given = ("--workers", "1", "--steps", str(steps))
    job = submit(drained, RUN, *given)
    _drains_and_refuses(stack, known, job, lines, wait_for)

    # The run goes on while its store restarts.
    before, root = stack.outputs(), _root(stack)
    _make(stack, *STORE)
    assert (_objects(before, root), _objects(before, _root(stack))) == (403, 200)
    reached = lines()
    wait_for(lambda: lines() > reached + 4, 60)
    assert stack.outputs() == before

    # Not while it runs, because all of it would be lost.
    path = stack.project / "Pulumi.test.yaml"
    settings = settings_file.read(path)
    said = _make(stack, *RAY, code=1)
    assert f"ends these jobs: {job.label}\n" in said
    assert "error: ray-token restarts Ray's head. Nothing was changed\n" in said
    assert settings_file.read(path) == settings
    assert settings["config"]["trainyard:rotated"] == {"object-store-root": 1}

    # Others are written down by hand, as in a pull request: one `up` for all.
    names = ("object-store-root", "serve-token", "tracking-admin", "object-store-training")
    settings["config"]["trainyard:rotated"] = dict.fromkeys(names, 1)
    path.write_text(json.dumps(settings))
    assert FORCED == "FORCE=1"  # it asks; here nobody can be asked
    said = _make(stack, *RAY, "FORCE=yes")
    assert f"ray-head is drained, for at most 60 s: {job.submission_id} ({RUN})\n" in said
    after = stack.outputs()
    for ask in (_ray, _tracking, _objects):
        assert (ask(before) in (401, 403), ask(after)) == (True, 200), ask
    settings = settings_file.read(path)
    assert settings["config"]["trainyard:rotated"] == dict.fromkeys((*names, "ray-token"), 1)

    # The run goes on where it was drained, and nothing of it is trained twice.
    Path(f"{steps}.go").touch()
    job = submit(drained, RUN, *given)
    submit(served, "served")
    server = JobServer(known())
    wait_for(lambda: server.job(job.submission_id).status.ended, 240)
    log = "".join(server.log_pieces(job.submission_id))
    assert server.job(job.submission_id).status == "SUCCEEDED", log
    assert re.search(r"Restored from checkpoint \S+: \d+ epochs and \d+ batches", log)
    every = drained.parser.get_default("epochs") * drained.STEPS
    assert steps.read_text().split() == [*map(str, range(every))]

    wait_for(lambda: _answers(after), 120)
    assert (_serve(before), _serve(after)) == (403, 404)
    said = "".join(stack.said)
    for output in ("rayToken", "serveToken", "secretKey", "trackingPassword"):
        assert before[output] not in said
        assert after[output] not in said


def _drains_and_refuses(
    stack: Any,
    known: Callable[[], Any],
    job: Any,
    lines: Callable[[], int],
    wait_for: Callable[..., Any],
) -> None:
    """Other changes drain workers, after which a run goes on, and refuse to restart the head."""
    wait_for(lambda: lines() > 2, 240)
    stack.change(head={"cpus": 1})
    refused = stack.engine("up", "--yes", check=False)
    named = f"its jobs would be lost: {job.submission_id} ({RUN}). Wait for their end"
    assert named in refused.stdout + refused.stderr
    stack.change("head", worker={"cpus": 1, "resources": {"new": 1}})
    said = stack.engine("up", "--yes").stderr
    assert f"ray-worker-0 is drained, for at most 60 s: {job.submission_id} ({RUN})\n" in said
    reached = lines()
    wait_for(lambda: lines() > reached + 4, 120)
    log = "".join(JobServer(known()).log_pieces(job.submission_id))
    left = re.findall(r"Notice: .* epoch (\d+) is stored up to batch (\d+)", log)
    taken_up = re.findall(r"Restored from checkpoint \S+: (\d+) epochs and (\d+) batches", log)
    assert left
    assert [(str(int(epoch) - 1), batch) for epoch, batch in left if batch != "0"] == taken_up


def _answers(outputs: Mapping[str, Any]) -> bool:
    try:
        return bool(_serve(outputs))
    except OSError:
        return False
