import json
import os
import signal
import socket
import sys
import uuid
from functools import partial

import docker
import pytest
from docker.errors import DockerException, ImageNotFound

from tests import quick
from tests.fakes.sshd import Sshd
from tests.file_stack import FileStack
from tests.waiting import wait_for

BASE_IMAGE = "debian:bookworm-slim"


class EngineProcess(FileStack):
    """A stack, by default of the project `files`, of engines in processes of their own."""

    def __init__(self, root, environment, server):
        super().__init__(root)
        self._server = server
        self.environment = os.environ | environment
        self._started = []

    def start(self, command, *arguments, delay=0.0, hold="", moment=0):
        """Start the engine; a create waits while a file named by `hold` is there."""
        environment = self.environment | {"FILES_DELAY": str(delay), "FILES_HOLD": str(hold)}
        argv = [command, *arguments]
        process = self._server.start(argv, self.project, environment, moment=moment)
        self._started.append(process)
        return process

    def run(self, command, *arguments, **how):
        process = self.start(command, *arguments, **how)
        output, _ = process.communicate(timeout=100)
        return process.returncode, output

    def done(self, command, *arguments):
        """The output of a command that has to succeed."""
        code, output = self.run(command, *arguments)
        assert code == 0, output
        return output

    def refused(self, command, *arguments):
        """The output of a command that has to fail, without a traceback."""
        code, output = self.run(command, *arguments)
        assert code == 1, output
        assert "Traceback" not in output
        return output

    def up(self, *arguments, **shape):
        """Declare the resources, if any, and run; its output."""
        if shape:
            self.declare(**shape)
        return self.done("up", "--yes", *arguments)

    def fails(self, **shape):
        """The output of an up that has to fail."""
        if shape:
            self.declare(**shape)
        return self.refused("up", "--yes")

    def killed(self, until, **how):
        """Kill an up at a moment, as the loss of the machine does."""
        process = self.start("up", "--yes", **how)
        wait_for("the moment of the kill", until, 20)
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def contents(self):
        """Names of resources to their files: two files of one name are a duplicate."""
        found = {}
        for path in sorted(self.folder.glob("*.json")):
            name = path.name.partition(".")[0]
            assert name not in found, f"duplicate of {name}"
            found[name] = json.loads(path.read_text())
        return found

    def files(self):
        """Names of resources to the texts of their files."""
        return {name: content["text"] for name, content in self.contents().items()}

    def end(self):
        while self._started:
            self._started.pop().close()


class CommandStack(EngineProcess):
    """A stack of the project `command`: commands and files on an SSH server of the test's own."""

    program = "command"

    def __init__(self, root, environment, engines, server):
        super().__init__(root, environment, engines)
        self.server = server
        where = {"host": server.host, "port": server.port, "user": server.user}
        keys = {"host_key": server.host_key, "private_key": server.key_file.read_text()}
        self.connection = where | keys
        self.environment.pop("SSH_AUTH_SOCK", None)

    def config(self):
        return {"folder": str(self.folder), "connection": self.connection}

    def lines(self, name):
        """The text that the commands wrote to a file of the test's folder."""
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []


class DockerStack(EngineProcess):
    """A stack of the project `docker`: a network, a volume, an image and three containers."""

    program = "docker"

    def __init__(self, root, environment, engines, client):
        super().__init__(root, environment, engines)
        self.client = client
        self.prefix = f"trainyard-test-{uuid.uuid4().hex[:8]}"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]

    def config(self):
        return {"prefix": self.prefix, "base": BASE_IMAGE, "port": self.port}

    def container(self, name):
        return self.client.containers.get(f"{self.prefix}-{name}")

    def foreign(self, name, **options):
        """Start a container that is not of the stack."""
        options |= {"labels": {"trainyard-test": self.prefix}, "name": f"{self.prefix}-{name}"}
        return self.client.containers.run(BASE_IMAGE, ["sleep", "inf"], detach=True, **options)

    def ids(self):
        """Names of the existing containers to their ids."""
        found = self.client.containers.list(all=True, ignore_removed=True)
        mine = [each for each in found if each.labels.get("trainyard-test") == self.prefix]
        return {each.name.removeprefix(f"{self.prefix}-"): each.id for each in mine}

    def others(self):
        """Names of the existing networks and volumes."""
        found = [*self.client.networks.list(), *self.client.volumes.list()]
        return {each.name for each in found if each.name.startswith(self.prefix)}

    def end(self):
        super().end()
        for container in self.client.containers.list(all=True, ignore_removed=True):
            if container.labels.get("trainyard-test") == self.prefix:
                container.remove(force=True, v=True)
        for thing in (*self.client.networks.list(), *self.client.volumes.list()):
            if thing.name.startswith(self.prefix):
                thing.remove()
        for image in self.client.images.list(name=f"{self.prefix}-image"):
            self.client.images.remove(image.id, force=True)


@pytest.fixture(scope="session")
def docker_client():
    """A client of a Docker Engine that has the image to build on."""
    try:
        client = docker.from_env()
    except DockerException as error:
        pytest.skip(f"no Docker Engine answers (install docker.io and start dockerd): {error}")
    try:
        client.images.get(BASE_IMAGE)
    except ImageNotFound:
        try:
            client.images.pull(BASE_IMAGE)
        except DockerException as error:
            pytest.skip(f"the image {BASE_IMAGE} is not there (docker load it): {error}")
    yield client
    client.close()


@pytest.fixture
def environment(tmp_path):
    return {
        "PULUMI_CONFIG_PASSPHRASE": "x",
        "PULUMI_BACKEND_URL": f"file://{tmp_path / 'backend'}",
        "PULUMI_SKIP_UPDATE_CHECK": "1",
        "COLUMNS": "200",
    }


@pytest.fixture
def engine(tmp_path, environment, engines):
    stack = EngineProcess(tmp_path, environment, engines)
    yield stack
    stack.end()


@pytest.fixture
def pulumi(request, pulumi_cli):
    """Runs a command of the pulumi CLI on the test's stack, which has to succeed."""
    (kind,) = {"engine", "stack", "commands"} & set(request.fixturenames)
    shared = request.getfixturevalue(kind)
    shared.environment |= {
        **quick.AS_THE_CLI,
        "PULUMI_PYTHON_CMD": sys.executable,
        "PYTHONPATH": str(shared.project),
    }
    shared.backend.parent.mkdir(exist_ok=True)
    return partial(pulumi_cli.done, shared.project, shared.environment, "dev")


@pytest.fixture
def stack(tmp_path, environment, engines, docker_client):
    stack = DockerStack(tmp_path, environment, engines, docker_client)
    stack.declare()
    yield stack
    stack.end()


@pytest.fixture
def ssh_server(tmp_path):
    (folder := tmp_path / "ssh").mkdir()
    try:
        server = Sshd(folder)
    except FileNotFoundError as error:
        pytest.skip(str(error))
    with server:
        yield server


@pytest.fixture
def commands(tmp_path, environment, engines, ssh_server):
    stack = CommandStack(tmp_path, environment, engines, ssh_server)
    yield stack
    stack.end()
