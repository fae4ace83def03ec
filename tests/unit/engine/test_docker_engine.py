"""How a Docker Engine is reached, and what is said when it is not; images without a real one."""

import subprocess
import sys
from types import SimpleNamespace

import docker
import pytest
from docker.errors import APIError, DockerException, ImageNotFound

from engine import docker_engine
from engine.docker_engine import connect, fetch_image
from engine.docker_objects import Image
from engine.errors import EngineError


@pytest.fixture(autouse=True)
def _fresh():
    connect.cache_clear()
    yield
    connect.cache_clear()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("FileNotFoundError(2, 'No such file or directory')", "start it, or set DOCKER_HOST"),
        ("PermissionError(13, 'Permission denied')", "join the group docker"),
    ],
)
def test_an_engine_that_cannot_be_reached(monkeypatch, fault, words):
    def refuse(**settings):
        raise DockerException(f"Error while fetching server API version: {fault}")

    monkeypatch.setattr(docker, "APIClient", refuse)
    monkeypatch.setenv("DOCKER_HOST", "unix:///there.sock")
    with pytest.raises(EngineError, match=words) as raised:
        connect()
    assert "unix:///there.sock" in str(raised.value)


@pytest.mark.parametrize("host", ["tcp://192.0.2.7:2375", "192.0.2.7:2375", "http://192.0.2.7"])
def test_an_engine_on_a_network_without_tls_is_refused_unasked(monkeypatch, host):  # F40
    monkeypatch.setenv("DOCKER_HOST", host)
    monkeypatch.delenv("DOCKER_TLS_VERIFY", raising=False)
    monkeypatch.setattr(docker, "APIClient", None)
    with pytest.raises(EngineError, match=f"DOCKER_HOST = '{host}' without TLS: .*ssh://"):
        connect()


def test_an_engine_that_is_too_old(monkeypatch):
    monkeypatch.setattr(docker, "APIClient", lambda **_: SimpleNamespace(api_version="1.40"))
    with pytest.raises(EngineError, match=r"API 1\.40; at least 1\.41 \(Docker Engine 20\.10\)"):
        connect()
    monkeypatch.setattr(docker, "APIClient", lambda **_: SimpleNamespace(api_version="1.100"))
    assert connect().api_version == "1.100"


def test_the_sdk_is_imported_only_for_docker_resources():
    code = "import engine.operation, sys; assert 'docker' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


class _Client:
    """A Docker Engine with some images."""

    def __init__(self, images, built=()):
        self.images = images
        self.built = built
        self.removed = []

    def inspect_image(self, name):
        if name not in self.images:
            response = SimpleNamespace(status_code=404, url="", reason="")
            raise ImageNotFound("no", response=response, explanation="No such image")
        return {"Id": self.images[name], "RepoDigests": []}

    def pull(self, repository, tag, **_):
        yield {"status": "Pulling"}
        yield {"error": "no such host"}

    def build(self, **asked):
        self.asked = asked
        yield from self.built

    def remove_image(self, name, force):
        self.removed.append(name)


def test_an_image_that_cannot_be_pulled():
    said = []
    with pytest.raises(EngineError, match=r"the image a/b:1 is not on this machine.*no such host"):
        fetch_image(_Client({}), "a/b:1", lambda level, text: said.append((level, text)))
    assert said == [("info", "pulling the image a/b:1")]


def test_a_build(tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM scratch")
    client = _Client(
        {"i:1": "sha256:1"}, [{"stream": "Step 1/1 : FROM scratch\n"}, {"stream": "x"}]
    )
    said = []
    image = Image(client, lambda level, text: said.append((level, text)))
    build = {"context": str(tmp_path), "dockerfile": "Dockerfile", "remove": True, "__defaults": []}
    live = image.create({"name": "i:1", "build": build, "keepLocally": True, "__defaults": []})
    assert live.id == "sha256:1i:1"
    assert live.outputs["imageId"] == "sha256:1"
    assert live.outputs["build"].keys() == {"context", "dockerfile", "remove"}
    assert said == [("info", "i:1: Step 1/1 : FROM scratch"), ("debug", "i:1: x")]
    # What was cut off may have left an older build under the name.
    assert image.find({"name": "i:1", "build": build}) is None


@pytest.mark.parametrize("missing", ["folder", "Dockerfile"])
def test_a_build_of_nothing_names_the_path(tmp_path, missing):
    context = tmp_path / "folder"
    if missing == "Dockerfile":
        context.mkdir()
    build = {"context": str(context), "dockerfile": "Dockerfile", "remove": True}
    with pytest.raises(EngineError, match=str(context)):
        Image(_Client({}), lambda level, text: None).create({"name": "i:1", "build": build})


@pytest.mark.parametrize(
    ("keep", "images", "removed"),
    [
        (True, {"i:1": "sha256:1"}, []),
        (False, {"i:1": "sha256:1"}, ["i:1"]),
        (False, {"i:1": "sha256:2"}, ["sha256:1"]),  # a replacement has the name
        (False, {}, []),
    ],
)
def test_an_image_is_removed_unless_it_is_kept_or_another_one(keep, images, removed):
    client = _Client(images)
    olds = {"name": "i:1", "imageId": "sha256:1", "keepLocally": keep}
    Image(client, lambda level, text: None).delete("sha256:1i:1", olds)
    assert client.removed == removed


def test_what_docker_says_is_one_message():
    def conflict():
        response = SimpleNamespace(status_code=409, url="", reason="Conflict")
        raise APIError("409", response=response, explanation="the name is taken")

    with (
        pytest.raises(EngineError, match=r"^container web: the name is taken$"),
        docker_engine.explained("container web"),
    ):
        conflict()
