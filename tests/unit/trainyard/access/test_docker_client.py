"""The choice of a Docker Engine, and the message on a refused one; no Engine is needed."""

from types import SimpleNamespace

import docker
import pytest
import requests
from docker.errors import APIError

from tests.ssh_keys import new_key
from trainyard.access import docker_client
from trainyard.access.docker_client import EngineUnavailableError
from trainyard.access.ssh import Connection

OPEN = ["tcp://192.0.2.7:2375", "192.0.2.7:2375", "http://192.0.2.7", "https://192.0.2.7:2376"]


@pytest.mark.parametrize("host", OPEN)
def test_an_engine_on_a_network_without_tls_is_refused_unasked(monkeypatch, host):  # F40
    monkeypatch.setenv("DOCKER_HOST", host)
    monkeypatch.delenv("DOCKER_TLS_VERIFY", raising=False)
    monkeypatch.setenv("DOCKER_CERT_PATH", "/certs")  # encrypted, but the server is not checked
    monkeypatch.setattr(docker, "from_env", None)
    with pytest.raises(EngineUnavailableError) as raised:
        docker_client.connect()
    said = str(raised.value)
    assert said.startswith(f"DOCKER_HOST = '{host}' without TLS: ")
    assert "DOCKER_HOST=ssh://user@host, or set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH" in said


@pytest.mark.parametrize("host", ["ssh://a@b", "unix:///x", "tcp://192.0.2.7:2376"])
def test_an_engine_that_says_who_it_is_is_asked(monkeypatch, host):
    monkeypatch.setenv("DOCKER_HOST", host)
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1" if host.startswith("tcp") else "")
    docker_client.refuse_open_host()


@pytest.mark.parametrize("host", ["192.0.2.7", "gpu1.lab", "2001:db8::7"])
@pytest.mark.parametrize("agent", [False, True])
def test_what_the_state_has_leads_to_the_machine_again(host, agent, tmp_path):  # A27
    new_key(key := tmp_path / "key")
    known = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5"
    options = docker_client.ssh_options(known, "" if agent else str(key))
    found = docker_client.ssh_connection(docker_client.ssh_host("ada", host, 2222), options)
    assert (found.user, found.host, found.port, found.host_key) == ("ada", host, 2222, known)
    assert found.private_key == ("" if agent else key.read_text())
    for other in ([*options, "-A"], options[2:], []):
        with pytest.raises(ValueError, match="with the options"):
            docker_client.ssh_connection(f"ssh://ada@{host}:22", other)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ("absent closed", "ada@gpu1 has no Docker Engine .*sudo apt install docker.io"),
        ("closed", "may not be used by this user: run there `sudo usermod -aG docker ada`"),
        ("", "does not answer: look there whether it runs .* AllowStreamLocalForwarding"),
    ],
)
def test_what_another_machine_lacks_is_told(found, said, monkeypatch):
    monkeypatch.setattr(docker_client.ssh_run, "socket", lambda *_: "/nowhere/socket")
    monkeypatch.setattr(docker_client.ssh_run, "run", lambda *_, **__: found)
    with pytest.raises(EngineUnavailableError, match=said):
        docker_client.connect(machine=Connection(host="gpu1", user="ada", host_key="x"))


class Api:
    """Pulls as it is told."""

    def __init__(self, *lines):
        self.lines = lines

    def pull(self, repository, tag, **_):
        assert (repository, tag) == ("registry:5000/a/b", "1")
        for line in self.lines:
            if isinstance(line, Exception):
                raise line
            yield line


REFUSED = APIError("404", response=SimpleNamespace(status_code=404), explanation="no such image")


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        (({"status": "Pulling"},), ""),
        (({"status": "Pulling"}, {"error": "no such host"}), "no such host"),
        ((REFUSED,), "no such image"),
        (({"status": "Pulling"}, requests.ConnectionError("x")), "the Engine broke off: x"),
    ],
)
def test_what_is_wrong_with_a_pull_is_told(lines, wrong):
    assert docker_client.pull(Api(*lines), "registry:5000/a/b:1") == wrong
