"""A real supervisord, and a whole stack on free ports brought up by the embedded engine."""

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from cluster import object_store, services
from engine import crypto
from engine.state import Backend, State
from engine.values import mask
from infra.machines import tools
from tests import checkout, pages, quick, status, stores, waiting, webhook
from tests.cli import Cli
from tests.fakes.machines import Machines, NoMachinesError
from tests.ports import free_ports
from trainyard.client.outputs import StackOutputs

ROOT = Path(__file__).resolve().parents[3]
PORTS = [key for key, port in services.PORTS.items() if not port.each_node]
PROJECT = "trainyard"
COMPARED = ("type", "custom", "parent", "inputs", "outputs", "additionalSecretOutputs", "protect")
TIMEOUT_SECONDS = 600  # an `up` may have to build images first


def _started_below(folder: Path) -> list[psutil.Process]:
    """Every process that the supervisord of a folder started, and itself."""
    found = []
    for process in psutil.process_iter():
        try:
            own = (
                process.environ().get("SUPERVISOR_SERVER_URL") == f"unix://{folder}/supervisor.sock"
            )
            named = any(f"{folder}/" in word for word in process.cmdline())
            if (own or named) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def _wait_for(check: Callable[[], Any], seconds: float = 30) -> Any:
    return waiting.wait_for("what is checked", check, seconds)


@pytest.fixture(scope="module", autouse=True)
def _quick_keys() -> Iterator[None]:
    """States that engines of tests/quick.py have written are read here too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crypto, "ROUNDS", quick.ROUNDS)
        yield


@pytest.fixture(scope="session")
def wait_for() -> Callable[..., Any]:
    """Poll until a check holds."""
    return _wait_for


@pytest.fixture(scope="session")
def started_below() -> Callable[[Path], list[psutil.Process]]:
    return _started_below


@pytest.fixture
def free_port() -> Callable[[], int]:
    return lambda: free_ports(1)[0]


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for sockets; all processes below it are ended afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="ty", dir="/tmp"))
    yield folder
    for process in _started_below(folder):
        process.kill()
    shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, kw_only=True)
class Stack:
    """A stack that is up.

    Attributes:
        python: for the engine: the project's, if that is a copy of the checkout.
        cli: the pulumi CLI, if it works on the stack too.
    """

    project: Path
    python: str
    folder: Path
    data: Path
    environment: dict[str, str]
    settings: dict[str, Any]
    said: list[str]
    cli: Cli | None

    def engine(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self._run("engine", self.project, *arguments, check=check)

    def pulumi(self, command: str, *arguments: str, check: bool = True) -> str:
        """Run a command of the pulumi CLI, which makes the stack first; its output."""
        assert self.cli is not None
        if command != "stack init" and not self.backend.exists(PROJECT, "test"):
            self.pulumi("stack init")
        code, text = self.cli.run(self.project, self.environment, "test", command, *arguments)
        self.said.append(text)
        assert (code == 0) == check, text
        return text

    def change(self, *removed: str, **changes: Any) -> None:
        """Remove some settings, and change others."""
        for name in removed:
            del self.settings[name]
        self.settings.update(changes)
        path = self.project / "Pulumi.test.yaml"
        written = yaml.safe_load(path.read_text())
        written["config"] = {f"trainyard:{key}": value for key, value in self.settings.items()}
        path.write_text(json.dumps(written))

    def terminal(self, name: str) -> pages.Terminal:
        """For pages that use this name; the project has to be a copy of the checkout."""
        module = self.project / "engine" / "crypto.py"  # the state's key is derived as in quick.py
        rounds = quick.rounds(self.environment)
        module.write_text(module.read_text().replace(f"{quick.PULUMIS:_}", f"{rounds:_}"))
        instead = {f"-s {name}": "-s test", f"STACK={name}": "STACK=test"}
        user = pages.Terminal(self.project, self.environment, instead)
        user.run(pages.SOURCED)
        return user

    def drift(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._run("infra.operate.drift", self.project, *arguments, check=False)

    def _run(
        self, module: str, folder: Path, *arguments: str, check: bool
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [self.python, *quick.module(module), "-C", self.project, *arguments, "-s", "test"],
            cwd=folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
            umask=0o077,  # F58: files for other users are readable all the same
        )
        self.said.append(done.stdout + done.stderr)
        if check and done.returncode:
            # The error first: a long report loses its end.
            raise AssertionError(
                f"{module} {' '.join(arguments)} ended with {done.returncode}: "
                f"{done.stderr[-2000:]}\n\n{done.stdout}"
            )
        return done

    @property
    def backend(self) -> Backend:
        return Backend(self.environment["PULUMI_BACKEND_URL"], self.project)

    def state(self) -> State:
        phrase = self.environment["PULUMI_CONFIG_PASSPHRASE"]
        with quick.counting(self.environment):
            return self.backend.load(PROJECT, "test", phrase)

    def resources(self) -> dict[str, Any]:
        """Each resource in the state, without secrets and values that differ each time."""
        state = self.state()
        found = {
            entry["urn"]: {name: mask(entry.get(name)) for name in COMPARED}
            for entry in state.resources
            if not entry["type"].startswith("pulumi:providers:")
        }
        # Each first `up` draws another mark of the stack, which is not a secret.
        text = json.dumps(found)
        for entry in state.resources:
            if entry["type"].endswith("process:Mark"):
                text = text.replace(entry["outputs"]["value"], "drawn")
        same: dict[str, Any] = json.loads(text)
        return same

    def outputs(self) -> dict[str, Any]:
        text = self.engine("output", "--json", "--show-secrets").stdout
        self.said.pop()  # secrets were asked for
        outputs: dict[str, Any] = json.loads(text)
        return outputs

    def write_outputs(self, folder: Path) -> Path:
        """A private file of the outputs, as `train` wants it."""
        file = folder / "outputs.json"
        file.touch(mode=0o600)
        file.write_text(json.dumps(self.outputs()))
        return file

    def kill(self) -> None:
        # Below the project: the program and the host of providers of a bench that was killed.
        for process in (*_started_below(self.folder), *_started_below(self.project)):
            with suppress(psutil.Error):
                # A job may start a program without any variables.
                for child in (process, *process.children(recursive=True)):
                    child.kill()


def _declare(base: Path, *, copied: bool = False, cli: Cli | None = None, **changes: Any) -> Stack:
    project = base / "project"
    if copied:
        checkout.copy(project)
    else:
        (project / "infra").mkdir(parents=True)
        shutil.copy(ROOT / "Pulumi.yaml", project)
        shutil.copy(ROOT / "infra" / "__main__.py", project / "infra")
    (base / "backend").mkdir()
    first, *_ = free_ports(len(PORTS) + 2)
    values: dict[str, Any] = {key: first + offset for offset, key in enumerate(PORTS)}
    values |= {"agentPort": first + len(PORTS), "workers": 1, "worker": {"cpus": 1}}
    values["startTimeoutSeconds"] = 400  # other tests run too
    values |= {"stateDir": str(base / "s"), "dataDir": str(base / "d")}
    if "nodeGroups" in changes:
        del values["workers"], values["worker"]
    if changes.get("runtime") in {"docker", "kubernetes"}:
        del values["stateDir"], values["dataDir"]
    values |= changes
    text = json.dumps({"config": {f"trainyard:{key}": value for key, value in values.items()}})
    (project / "Pulumi.test.yaml").write_text(text)
    environment = {
        **os.environ,
        "PULUMI_BACKEND_URL": f"file://{base}/backend",
        # Jobs search for it, also in uploads of the whole checkout: no file may name it.
        "PULUMI_CONFIG_PASSPHRASE": secrets.token_hex(16),
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONFAULTHANDLER": "1",  # an engine once ended with signal 11
        **(quick.AS_THE_CLI if cli else {}),
    }
    return Stack(
        project=project,
        python=str(project / ".venv" / "bin" / "python") if copied else sys.executable,
        folder=base / "s",
        data=base / "d",
        environment=environment,
        settings=values,
        said=[],
        cli=cli,
    )


@pytest.fixture(scope="session")
def declare() -> Callable[..., Stack]:
    """Make a project on free ports in a folder; the caller ends its leftover processes.

    It holds the program alone, and with `copied` the whole checkout, as a user has it.
    """
    return _declare


@pytest.fixture
def declare_stack() -> Iterator[Callable[..., Stack]]:
    """Make a project with free ports; its leftover processes are ended afterwards."""
    stacks: list[tuple[Path, Stack]] = []

    def declare(**changes: Any) -> Stack:
        base = Path(tempfile.mkdtemp(prefix="ty", dir="/tmp"))
        stacks.append((base, stack := _declare(base, **changes)))
        return stack

    yield declare
    for base, stack in stacks:
        stack.kill()
        shutil.rmtree(base, ignore_errors=True)


@contextmanager
def _up(**changes: Any) -> Iterator[Stack]:
    """A whole stack that is up; it must leave nothing behind."""
    base = Path(tempfile.mkdtemp(prefix="ty", dir="/tmp"))
    stack = _declare(base, **changes)
    try:
        stack.engine("up", "--yes")
        yield stack
        stack.engine("destroy", "--yes")
        assert _started_below(stack.folder) == []
        assert not stack.folder.exists()
    finally:
        stack.kill()
        shutil.rmtree(base, ignore_errors=True)


@pytest.fixture(scope="session")
def bring_up() -> Callable[..., Any]:
    """Have a stack with these settings for as long as a block runs; nothing of it is left."""
    return _up


@pytest.fixture(scope="session")
def stack(build_store) -> Iterator[Stack]:
    """A stack as `make up` has it on this machine, that tests of the session share.

    Its services decide the assertions: with Go it has an object store, without one a folder.
    """
    known = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text())["config"]
    chosen = {key.partition(":")[2]: value for key, value in known.items()}
    with suppress(pytest.skip.Exception):
        build_store(tools.DEFAULT)
        chosen["objectStore"] = tools.DEFAULT
    with _up(**chosen) as stack:
        yield stack


@pytest.fixture(scope="session")
def alerts() -> Iterator[webhook.Webhook]:
    """The webhook of `stack_with_minio`'s Alertmanager."""
    with webhook.receiving() as receiver:
        yield receiver


@pytest.fixture(scope="session")
def second_store(store_program, tmp_path_factory) -> Iterator[stores.BareStore]:
    """The S3 service that the results of `stack_with_minio` are copied to."""
    kind = object_store.STORES["versitygw"]
    with stores.bare(kind, store_program, tmp_path_factory.mktemp("second")) as store:
        yield store


@pytest.fixture(scope="session")
def stack_with_minio(build_store, alerts, second_store) -> Iterator[Stack]:
    """The stack of the tests that `make test` leaves to `make test-rest`.

    Its store is MinIO, the only one with figures for Prometheus.
    """
    build_store("minio")
    replica = {
        "to": f"s3://{stores.BUCKET}/copy",
        "endpoint": second_store.endpoint,
        "accessKey": second_store.root.access,
        "secretKey": second_store.root.secret,
    }
    own = {"alertWebhookUrl": alerts.url, "replicate": replica, "queue": True}
    with _up(objectStore="minio", **own) as stack:
        yield stack


@pytest.fixture(scope="module")
def outputs_file(stack, tmp_path_factory) -> Path:
    """The outputs of the shared stack; tests of another stack have a fixture of that name."""
    return stack.write_outputs(tmp_path_factory.mktemp("outputs"))


@pytest.fixture(scope="session")
def guests(store_program) -> Iterator[Machines]:
    """Machines to be booted; they and their network are gone afterwards."""
    try:
        machines = Machines()
    except NoMachinesError as error:
        pytest.skip(str(error))
    with machines:
        yield machines


@pytest.fixture(scope="session")
def settled() -> Callable[..., list[dict[str, Any]]]:
    """Wait until the cluster of some outputs has so many living nodes; they are returned."""
    path = "/api/v0/nodes?filter_keys=state&filter_predicates=%3D&filter_values=ALIVE"

    def wait(outputs: StackOutputs, count: int) -> list[dict[str, Any]]:
        def check() -> Any:
            answer = status.ask(f"{outputs.dashboard_url}{path}", outputs.ray_token)
            found = answer["data"]["result"]["result"]
            return found if len(found) == count else None

        found: list[dict[str, Any]] = _wait_for(check, 90)
        return found

    return wait


@pytest.fixture
def train(outputs_file) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `train ARGUMENTS` on the stack of `outputs_file`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "AWS_", "TRAIN"))}
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "trainyard.client", *arguments],
            cwd=ROOT,
            env={**kept, "TRAINYARD_OUTPUTS": str(outputs_file)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            umask=0o077,  # F58
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
