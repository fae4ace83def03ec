"""Each fault is one message that says what was wrong, why and what to do; nothing is left of it."""

import io
import json
import os
import re
import socket
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from docker.errors import ImageNotFound

from infra.machines import docker_engine
from tests import ran
from tests.fakes import registry
from tests.fakes.registry import Registry
from tests.integration.infra.docker.conftest import failed

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

BASE = "trainyard-test/base:latest"


@pytest.fixture
def short_socket() -> Iterator[Path]:
    """Where a socket can be: paths of sockets are short."""
    with tempfile.TemporaryDirectory(prefix="ty", dir="/tmp") as folder:
        yield Path(folder, "docker.sock")


@pytest.fixture
def images_of_others() -> Iterator[Registry]:
    """A registry on loopback, from which an Engine pulls without TLS."""
    with registry.running() as found:
        yield found


@pytest.fixture
def make_image(images) -> Iterator[Callable[[str], str]]:
    """Make an image that runs a shell script."""
    client = docker_engine.client()
    made: list[str] = []

    def make(script: str) -> str:
        entry = json.dumps(["sh", "-c", script])
        made.append(tag := f"trainyard-test/{uuid.uuid4().hex}:1")
        client.images.build(
            fileobj=io.BytesIO(f"FROM {BASE}\nENTRYPOINT {entry}\n".encode()), tag=tag, rm=True
        )
        return tag

    yield make
    for tag in made:
        client.images.remove(tag, force=True)


def _errors(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("error: ")]


def test_an_engine_that_is_closed_to_the_user(make_small_lab, short_socket):
    lab = make_small_lab()
    command = [sys.executable, "-m", "engine", "up", "--yes", "-s", "test"]
    if os.geteuid() == 0:
        # Root, bound by the mode of a file like any other user.
        all_but = "-dac_override,-dac_read_search"
        command = ["setpriv", f"--bounding-set={all_but}", f"--inh-caps={all_but}", *command]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short_socket))
        listener.listen()
        short_socket.chmod(0)
        done = ran.run(
            command,
            cwd=lab.stack.project,
            env={**lab.stack.environment, "DOCKER_HOST": f"unix://{short_socket}"},
        )
    (error,) = _errors(failed(done))
    assert f"the Docker Engine at unix://{short_socket} may not be used by this user" in error
    assert "sudo usermod -aG docker $USER" in error


def test_an_image_with_a_digest_is_this_one_or_none(images_of_others):  # F40
    client = docker_engine.client()
    digest = images_of_others.put("a/b", "1", f"first {uuid.uuid4()}")
    reference = f"{images_of_others.name('a/b', '1')}@{digest}"
    assert docker_engine.fetch(client, reference) is None
    asked = len(images_of_others.asked)
    assert docker_engine.fetch(client, reference) is None  # it is here
    assert len(images_of_others.asked) == asked
    first = client.api.inspect_image(reference)["Id"]
    images_of_others.put("a/b", "1", f"moved {uuid.uuid4()}")
    assert client.api.inspect_image(reference)["Id"] == first
    client.images.remove(first, force=True)
    assert docker_engine.fetch(client, reference) is None
    assert client.api.inspect_image(reference)["Id"] == first
    client.images.remove(first, force=True)
    # A registry that answers with other content.
    forged = images_of_others.put("a/b", "2", f"second {uuid.uuid4()}")
    images_of_others.manifests["a/b", forged] = images_of_others.manifests["a/b", "1"]
    reference = f"{images_of_others.name('a/b', '2')}@{forged}"
    assert "verification failed" in str(docker_engine.fetch(client, reference))
    with pytest.raises(ImageNotFound):
        client.api.inspect_image(reference)


def test_a_container_that_does_not_come_up_and_then_does(make_image, make_small_lab):  # F31
    silent = make_image("seq 30; exec sleep infinity")
    lab = make_small_lab(images={"versitygw": silent}, startTimeoutSeconds=5)
    text = lab.refused()
    # The check's own words depend on the image: this one has no curl.
    late = r"versitygw is not up after 5 s \(setting startTimeoutSeconds\)\s+"
    late += r"exit code \d+: .*curl"
    assert re.search(late, text), text
    assert f"(docker logs {lab.prefix}versitygw has all)" in text
    shown = [line for line in text.splitlines() if line.isdecimal()]
    assert shown == [str(number) for number in range(11, 31)]

    lab.change(startTimeoutSeconds=300)
    lab.stack.engine("up", "--yes")
    lab.stack.engine("up", "--yes", "--expect-no-changes")
    nowhere = {"DOCKER_HOST": "unix:///tmp/no-such-engine.sock"}
    for command in ("up", "refresh"):
        assert "no Docker Engine answers" in lab.refused(command, **nowhere)
    lab.stack.engine("refresh", "--yes", "--expect-no-changes")
    assert "no Docker Engine answers" in lab.refused("destroy", **nowhere)
    lab.stack.engine("destroy", "--yes")
    assert lab.containers() == {}
    assert lab.networks() == []
