"""Work of the process runtime on another machine: what is sent, and what becomes of the answer."""

import json
from types import SimpleNamespace

import pytest

from infra.machines import host_provider as presence
from infra.machines import on_host
from infra.machines.process import DaemonProvider, DataProvider, ProgramProvider
from node.life import ServiceError
from node.programs import KINDS
from trainyard.access.ssh import SshError
from trainyard.access.ssh_run import CommandError

HOST = {
    "host": "192.0.2.4",
    "user": "ada",
    "hostKey": "ssh-ed25519 A",
    "port": 22,
    "privateKey": "canary",
    "agent": "/srv/a b/agent",
    "python": "/srv/a b/env/bin/python",
}
PROPS = {
    "folder": "/tmp/ty",
    "name": "web",
    "startTimeout": 120.0,
    "host": HOST,
    "machine": "ada@192.0.2.4",
    "__provider": "pickled",
}
SENT = {"folder": "/tmp/ty", "name": "web", "startTimeout": 120.0}


class Agent:
    """The other machine: notes what it is asked, and gives one answer."""

    def __init__(self):
        self.calls = []
        self.answer = {"result": None}
        self.error = None

    def run(self, connection, command, *, stdin, seconds):
        self.calls.append(SimpleNamespace(connection=connection, command=command, seconds=seconds))
        self.calls[-1].request = json.loads(stdin)
        self.calls[-1].text = stdin
        if self.error is not None:
            raise self.error
        return f"a banner of the login shell\n{json.dumps(self.answer)}\n"


@pytest.fixture
def agent(monkeypatch):
    made = Agent()
    monkeypatch.setattr(on_host, "run", made.run)
    return made


def _provider(kind=ProgramProvider):
    provider = kind()
    provider.configure(SimpleNamespace(config={"lambdaApiKey": "of the setting"}))
    return provider


def test_a_request_goes_by_standard_input_and_its_answer_is_the_state(agent):  # F35 F39
    agent.answer = {"result": ["web", {**SENT, "healthy": True}]}
    made = _provider().create(PROPS)
    assert made.id == "web"
    assert made.outs == {**PROPS, "healthy": True}
    (call,) = agent.calls
    assert call.command == ("cd '/srv/a b/agent' && exec '/srv/a b/env/bin/python' -m node.agent")
    assert call.request == {"kind": "program", "method": "create", "arguments": [SENT]}
    assert "canary" not in call.text  # a machine need not know how it is reached
    assert call.seconds == 120 + on_host.MARGIN_SECONDS
    assert (call.connection.host, call.connection.private_key) == ("192.0.2.4", "canary")


def test_every_method_is_done_there(agent):
    provider = _provider()
    agent.answer = {"result": {**SENT, "healthy": True}}
    assert provider.read("web", PROPS).outs == {**PROPS, "healthy": True}
    assert provider.update("web", PROPS, PROPS).outs == {**PROPS, "healthy": True}
    agent.answer = {"result": ["web", SENT]}
    assert provider.find(PROPS).outs == PROPS
    agent.answer = {"result": None}
    assert provider.read("web", PROPS).id == ""
    assert provider.find(PROPS) is None
    requests = [(call.request["method"], call.request["arguments"]) for call in agent.calls]
    assert requests == [
        ("read", ["web", SENT]),
        ("update", [SENT, SENT]),
        ("find", [SENT]),
        ("read", ["web", SENT]),
        ("find", [SENT]),
    ]


def test_what_is_kept_is_told_with_its_machine(agent, capsys):
    agent.answer = {"result": "kept: /srv/data"}
    _provider(DataProvider).delete("/srv/data", {**PROPS, "keep": True})
    assert capsys.readouterr().err == "ada@192.0.2.4: kept: /srv/data\n"
    agent.answer = {"result": ""}
    _provider(DataProvider).delete("/srv/data", PROPS)
    assert capsys.readouterr().err == ""


def test_an_error_there_names_the_machine(agent):  # F31
    agent.answer = {"error": "web did not answer. The last lines that it wrote:\n  no such module"}
    with pytest.raises(ServiceError, match=r"^ada@192.0.2.4: web did not answer(?s:.*)no such"):
        _provider().create(PROPS)


@pytest.mark.parametrize("error", [SshError("away"), CommandError("status 127")])
def test_a_silent_machine_is_gone_only_if_its_owner_says_so(agent, monkeypatch, error):  # F8
    asked = []
    agent.error = error
    answer = False

    def is_gone(host, config):
        asked.append((host["host"], config.get("lambdaApiKey")))
        return answer

    monkeypatch.setattr(presence, "is_gone", is_gone)
    for use in (_provider().read, _provider().delete):
        with pytest.raises(SshError):
            use("web", PROPS)
    answer = True
    assert _provider().read("web", PROPS).id == ""
    _provider().delete("web", PROPS)
    assert asked == [("192.0.2.4", "of the setting")] * 4
    # To make something it has to be there.
    with pytest.raises(SshError):
        _provider().create(PROPS)


def test_a_host_that_nobody_rented_is_never_gone(agent):
    agent.error = SshError("away")
    with pytest.raises(SshError, match="away"):
        _provider().read("web", PROPS)


def test_without_a_host_the_work_is_done_here(agent, monkeypatch):
    class Kind:
        def create(self, props):
            return "web", {**props, "healthy": True}

    monkeypatch.setitem(KINDS, "program", Kind())
    props = {"folder": "/tmp/ty", "name": "web"}
    assert _provider().create(props).outs == {**props, "healthy": True}
    assert agent.calls == []


def test_another_machine_is_another_resource_and_another_way_is_not():
    news = {**PROPS, "machine": "ada@192.0.2.5"}
    for provider in (ProgramProvider(), DaemonProvider(), DataProvider()):
        assert "machine" in provider.diff("x", PROPS, news).replaces
        moved = provider.diff("x", PROPS, {**PROPS, "host": HOST | {"host": "10.0.0.4"}})
        assert (moved.changes, moved.replaces) == (True, [])


@pytest.mark.parametrize("jobs", [[], ["process 7"], ["process 7", "process 8"]])
def test_jobs_of_a_killed_supervisord_are_told_from_its_machine(agent, jobs):  # F63
    agent.answer = {"result": jobs}
    provider = _provider(DaemonProvider)
    assert provider.act("users", PROPS) == jobs
    if jobs:
        with pytest.raises(ServiceError, match="would be lost: process 7"):
            provider.update("id", PROPS, PROPS)


def test_a_log_is_read_on_its_machine_and_data_have_none(agent):
    agent.answer = {"result": ["a", "b"]}
    assert _provider().log("web", PROPS, 7) == ["a", "b"]
    assert agent.calls[0].request == {"kind": "program", "method": "log", "arguments": [7, SENT]}
    assert _provider(DataProvider).log("data", PROPS, 7) == []
    assert len(agent.calls) == 1
