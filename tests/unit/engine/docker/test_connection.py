"""The message about an unreachable Docker Engine; images without a real one."""

import subprocess
import sys
from types import SimpleNamespace

import docker
import pytest
from docker.errors import APIError, DockerException, ImageNotFound

from engine.docker import connection
from engine.docker.connection import connect, fetch_image
from engine.docker.objects import Image
from engine.errors import EngineError


@pytest.fixture(autouse=True)
def _fresh():
    connect.cache_clear()
    yield
    connect.cache_clear()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (FileNotFoundError(2, "No such file or directory"), "start it .* DOCKER_HOST"),
        (PermissionError(13, "Permission denied"), "join the group docker"),
    ],
)
def test_an_engine_that_cannot_be_reached_is_one_message(monkeypatch, fault, words):
    def refuse(**_):
        raise DockerException("Error while fetching server API version") from fault

    monkeypatch.setattr(docker, "from_env", refuse)
    monkeypatch.setenv("DOCKER_HOST", "unix:///there.sock")
    with pytest.raises(EngineError, match=rf"unix:///there.sock.*{words}") as raised:
        connect(None)
    assert "runtime" not in str(raised.value)  # a setting of one program's


def test_the_sdk_is_imported_only_for_docker_resources():
    code = "import engine.operation, sys; assert 'docker' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


class _Client:
    """A Docker Engine with some images."""

    def __init__(self, images, built=()):
        self.images = images
        self.built = built

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
    # An interrupted build may have left an older one under the name.
    assert image.find({"name": "i:1", "build": build}) is None


@pytest.mark.parametrize("missing", ["folder", "Dockerfile"])
def test_a_build_of_nothing_names_the_path(tmp_path, missing):
    context = tmp_path / "folder"
    if missing == "Dockerfile":
        context.mkdir()
    build = {"context": str(context), "dockerfile": "Dockerfile", "remove": True}
    with pytest.raises(EngineError, match=str(context)):
        Image(_Client({}), lambda level, text: None).create({"name": "i:1", "build": build})


def test_what_docker_says_is_one_message():
    def conflict():
        response = SimpleNamespace(status_code=409, url="", reason="Conflict")
        raise APIError("409", response=response, explanation="the name is taken")

    with (
        pytest.raises(EngineError, match=r"^container web: the name is taken$"),
        connection.explained("container web"),
    ):
        conflict()
