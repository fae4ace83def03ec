"""Containers of the images: confined as the docker runtime confines them, and always removed."""

import io
import json
import subprocess
import sys
import tarfile
import time
import uuid
from pathlib import Path

import pytest

from tests import ran

BUILD = Path(__file__).parents[2] / "images" / "build.py"
# The images have to live without the rights that a stack takes from its containers.
CONFINED = ("--init", "--cap-drop=ALL", "--security-opt=no-new-privileges")
DEADLINE_S = 90


class Containers:
    """Containers, volumes and networks of one test or module; `remove` leaves none of them."""

    def __init__(self):
        self.made = []

    def docker(self, *arguments, check=True, **options):
        done = ran.run(["docker", *arguments], **options)
        if check and done.returncode:
            raise AssertionError(f"docker {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done

    def new(self, kind):
        """Make a network or a volume."""
        name = self._name(kind)
        self.docker(kind, "create", name)
        return name

    def start(self, image, *arguments, options=(), files=None):
        """Start a container; its files are below /etc/trainyard, as a stack's are."""
        name = self._name("container")
        self.docker("create", "--name", name, *CONFINED, *options, image, *arguments)
        self._upload(name, files or {})
        self.docker("start", name)
        return name

    def run(self, image, *arguments, options=(), files=None):
        """Run a container to its end; return its exit status and its output."""
        name = self.start(image, *arguments, options=options, files=files)
        return int(self.docker("wait", name).stdout), self.logs(name)

    def exec(self, container, *command, check=True):
        """Run a command in a container."""
        return self.docker("exec", container, *command, check=check)

    def logs(self, container):
        done = self.docker("logs", container)
        return done.stdout + done.stderr

    def inspect(self, name):
        return json.loads(self.docker("inspect", name).stdout)[0]

    def wait_for(self, container, url):
        """Wait until a URL answers 200 inside the container, asked as its health check asks."""
        ask = ("curl", "--fail", "--silent", "--max-time", "5", url)
        deadline = time.monotonic() + DEADLINE_S
        while self.exec(container, *ask, check=False).returncode:
            if time.monotonic() > deadline:
                raise AssertionError(f"{url} did not answer:\n{self.logs(container)[-3000:]}")
            time.sleep(0.2)

    def remove(self):
        """Remove everything; containers first, which hold the others."""
        for kind, name in sorted(self.made):
            arguments = ["--force", "--volumes"] if kind == "container" else []
            self.docker(kind, "rm", *arguments, name, check=False)

    def _name(self, kind):
        name = f"ty-image-test-{uuid.uuid4().hex[:12]}"
        self.made.append((kind, name))
        return name

    def _upload(self, name, files):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as package:
            for file, content in files.items():
                entry = tarfile.TarInfo(f"etc/trainyard/{file}")
                entry.size, entry.mode = len(content), 0o644
                package.addfile(entry, io.BytesIO(content))
        subprocess.run(["docker", "cp", "-", f"{name}:/"], input=buffer.getvalue(), check=True)


@pytest.fixture(scope="session")
def build(pytestconfig):
    """Builds an image, unless it is there; returns its tag."""
    try:
        subprocess.run(["docker", "version"], capture_output=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        pytest.skip("no Docker Engine answers: install Debian's docker.io and start dockerd")
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    def make(name):
        # A build takes up to minutes: show its progress.
        with capture.global_and_fixture_disabled():
            done = subprocess.run([sys.executable, BUILD, name], check=False)
        assert done.returncode == 0, f"{BUILD} {name}"
        return f"trainyard-test/{name}:latest"

    return make


def _image(name):
    @pytest.fixture(scope="session")
    def image(build):
        return build(name)

    return image


IMAGES = ("ray", "minio", "versitygw", "jupyter", "dataset", "mlflow")
globals().update({f"{name}_image": _image(name) for name in IMAGES})


@pytest.fixture
def containers():
    made = Containers()
    yield made
    made.remove()


@pytest.fixture(scope="module")
def shared_containers():
    made = Containers()
    yield made
    made.remove()
