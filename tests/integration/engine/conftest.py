import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import docker
import pytest
import yaml
from docker.errors import DockerException, ImageNotFound

PROGRAMS = Path(__file__).parents[2] / "projects"
BASE_IMAGE = "debian:bookworm-slim"


class EngineProcess:
    """A stack of the project `files`, worked on by engines in processes of their own."""

    program = "files"

    def __init__(self, root, environment):
        self.project = root / "project"
        self.folder = root / "made"
        self.folder.mkdir()
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(PROGRAMS / self.program, self.project, ignore=ignored)
        self.backend = root / "backend" / ".pulumi"
        self.environment = os.environ | environment
        self._started = []

    def config(self):
        return {"folder": str(self.folder)}

    def declare(self, **shape):
        config = self.config() | {"shape": shape}
        text = yaml.safe_dump({"config": config}, sort_keys=False)
        (self.project / "Pulumi.dev.yaml").write_text(text)

    def start(self, command, *arguments, delay=0.0):
        process = subprocess.Popen(
            [sys.executable, "-m", "engine", command, *arguments],
            cwd=self.project,
            env=self.environment | {"FILES_DELAY": str(delay)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def run(self, command, *arguments, delay=0.0):
        process = self.start(command, *arguments, delay=delay)
        output, _ = process.communicate(timeout=100)
        return process.returncode, output

    def files(self):
        """Names of resources to the texts of their files: two files of one name are a duplicate."""
        found = {}
        for path in sorted(self.folder.glob("*.json")):
            name = path.name.partition(".")[0]
            assert name not in found, f"duplicate of {name}"
            found[name] = json.loads(path.read_text())["text"]
        return found

    @property
    def state_file(self):
        name = yaml.safe_load((self.project / "Pulumi.yaml").read_text())["name"]
        return self.backend / "stacks" / name / "dev.json"

    def resources(self):
        latest = json.loads(self.state_file.read_text())["checkpoint"]["latest"]
        return latest.get("resources", [])

    def end(self):
        for process in self._started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class DockerStack(EngineProcess):
    """A stack of the project `docker`: a network, a volume, an image and three containers."""

    program = "docker"

    def __init__(self, root, environment, client):
        super().__init__(root, environment)
        self.client = client
        self.prefix = f"trainyard-test-{uuid.uuid4().hex[:8]}"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]

    def config(self):
        return {"prefix": self.prefix, "base": BASE_IMAGE, "port": self.port}

    def up(self, *arguments):
        return self.done("up", "--yes", *arguments)

    def done(self, command, *arguments):
        """Run a command that has to succeed; what it printed."""
        code, output = self.run(command, *arguments)
        assert code == 0, output
        return output

    def container(self, name):
        return self.client.containers.get(f"{self.prefix}-{name}")

    def ids(self):
        """Names of the containers that are there to their ids."""
        found = self.client.containers.list(all=True, ignore_removed=True)
        mine = [each for each in found if each.labels.get("trainyard-test") == self.prefix]
        return {each.name.removeprefix(f"{self.prefix}-"): each.id for each in mine}

    def others(self):
        """Names of the networks and volumes that are there."""
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
def engine(tmp_path, environment):
    stack = EngineProcess(tmp_path, environment)
    yield stack
    stack.end()


@pytest.fixture
def stack(tmp_path, environment, docker_client):
    stack = DockerStack(tmp_path, environment, docker_client)
    stack.declare()
    yield stack
    stack.end()
