"""Which Engine is asked, and the errors of one that cannot be used."""

from types import SimpleNamespace

import docker
import pytest

from infra.machines import docker_engine
from infra.machines.docker_engine import EngineUnavailableError
from trainyard.access import docker_client


def _said() -> str:
    with pytest.raises(EngineUnavailableError) as raised:
        docker_engine.client(5)
    return str(raised.value)


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("unix:///tmp/no-such-engine.sock", "No such file or directory"),
        ("ftp://127.0.0.1", "Invalid bind address protocol: ftp://127.0.0.1"),
    ],
)
def test_an_engine_that_does_not_answer_is_told_in_plain_words(monkeypatch, host, reason):  # F31
    monkeypatch.setenv("DOCKER_HOST", host)
    assert _said() == (
        f"no Docker Engine answers at {host} ({reason}); start it (sudo systemctl start docker) or "
        "point DOCKER_HOST at another one, or set runtime to process"
    )
    assert not docker_engine.answers()


def test_another_runtime_is_no_answer_to_an_open_engine(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.7:2375")
    monkeypatch.delenv("DOCKER_TLS_VERIFY", raising=False)
    assert _said().endswith("DOCKER_CERT_PATH")  # and not: set runtime to process
    with pytest.raises(EngineUnavailableError, match="without TLS"):
        docker_engine.answers()


def test_without_a_socket_nothing_is_asked(monkeypatch, tmp_path):
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(docker_client, "SOCKET", tmp_path / "docker.sock")
    monkeypatch.setattr(docker_engine, "client", None)
    assert not docker_engine.answers()


@pytest.mark.parametrize(
    ("version", "usable"), [("1.40", False), ("1.41", True), ("1.100", True), ("2.0", True)]
)
def test_an_old_engine_is_refused(monkeypatch, version, usable):
    api = SimpleNamespace(api_version=version)
    monkeypatch.setenv("DOCKER_HOST", "unix:///engine")
    monkeypatch.setattr(docker, "from_env", lambda **_: SimpleNamespace(api=api))
    assert docker_engine.answers() is usable
    if not usable:
        assert _said() == (
            "the Docker Engine at unix:///engine speaks API 1.40; 1.41 (Engine 20.10) or later is "
            "needed: get a newer one, or set runtime to process"
        )


@pytest.mark.parametrize(
    ("version", "open_"), [("20.10.24+dfsg1", True), ("27.5.1", True), ("28.0.0", False)]
)
def test_loopback_is_closed_to_neighbours_since_28(version, open_):  # F33
    assert docker_engine.lets_neighbours_in(version) is open_
