"""What is wrong with a program, by the answers and the log of a supervisord."""

import os
import socket
import time
from typing import Any

import pytest

from infra.machines.process import DaemonProvider, ProgramProvider
from node import life, owned_processes, process_health
from node.folders import FolderMark
from node.life import ServiceError
from node.process_health import ProgramDriver
from node.supervisor import Supervisor
from tests.ports import free_ports

MARK = {"id": "0123abcd", "project": "p", "stack": "s", "by": "ada@here"}
RUNS, BACKOFF, STOPPED = "RUNNING", "BACKOFF", "STOPPED"
LOG = "starting\nOSError: [Errno 98] Address already in use\nbye\n"


@pytest.fixture
def daemon(tmp_path, monkeypatch) -> Any:
    """Have a supervisord that tells of `web`: its state, for how long, and when it ended before."""
    monkeypatch.setattr(owned_processes, "of_supervisord", lambda *_: [])
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "log").write_text(LOG)
    supervisor = Supervisor(folder=tmp_path, mark=FolderMark.of(MARK))

    def tell(state: str | None, up: int = 0, ended: tuple[int, ...] = (), added: int = 900) -> Any:
        now = int(time.time())
        info = {"statename": state, "now": now, "start": now - up, "pid": 0}

        def answer(*_: Any) -> Any:
            if state == "silent":
                raise ConnectionRefusedError
            return info if state else None

        monkeypatch.setattr(Supervisor, "state", answer)
        monkeypatch.setattr(Supervisor, "distrust", lambda _: "")
        # Another zone than ours, as if TZ had changed since supervisord began.
        lines = [
            f"{time.strftime('%F %T', time.gmtime(now - ago + 7 * 3600))},123 {text}"
            for ago in sorted(ended, reverse=True)
            for text in (
                "WARN exited: web (exit status 3; not expected)",
                "INFO exited: webster (exit status 9; expected)",
            )
        ]
        log = tmp_path / "supervisord.log"
        log.write_text("\n".join([*lines, "no stamp\n"]))
        os.utime(log, (now, now - min(ended, default=0)))
        (tmp_path / "conf.d" / "web.conf").touch()
        os.utime(tmp_path / "conf.d" / "web.conf", (now, now - added))
        return supervisor

    return tell


def _fault(supervisor: Supervisor, props: dict[str, Any]) -> str:
    return life.fault(ProgramDriver(supervisor, props))


def _props(**changes: Any) -> dict[str, Any]:
    return {"name": "web", "ports": [], "health": [], "startTimeout": 0.0, "mark": MARK} | changes


LOOPS = "web ended 3 times in the last 10 min (exit status 3); its log says: OSError: [Errno 98]"


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ((RUNS, 3600, (3700, 3800, 3900)), ""),  # long ago
        ((RUNS, 30, (40, 50, 60)), LOOPS),
        ((RUNS, 30, (40, 50, 60), 45), ""),  # `up` has started it since
        ((STOPPED, 0), "web is stopped; its log says: OSError"),
        (("silent",), "does not answer: it was killed, or this machine was restarted"),
    ],
)
def test_what_is_wrong_with_a_program(daemon, told, said):  # F63
    found = _fault(daemon(*told), _props())
    assert said in found
    assert bool(found) == bool(said)


def test_a_program_whose_port_another_has_or_that_does_not_answer_is_not_well(  # F63
    daemon, monkeypatch
):
    monkeypatch.setattr(process_health, "PATIENT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        url = f"tcp://127.0.0.1:{port}"
        props = _props(ports=[{"number": float(port), "setting": "webPort"}], health=[url])
        found = _fault(daemon(RUNS, 5), props)
        assert found.startswith(f"port {port} (webPort) is held by ")
        assert f"pid {os.getpid()}" in found
        # It answers, but who answers is another program.
        for told in ((RUNS, 5), (BACKOFF, 0)):
            with pytest.raises(ServiceError, match=rf"port {port} \(webPort\) is held by"):
                life.await_up(ProgramDriver(daemon(*told), props), 0)
    found = _fault(daemon(RUNS, 3600), props)
    assert found.startswith(f"web does not answer {url}; its log says: OSError")


def test_a_program_on_demand_need_not_run(daemon):
    assert _fault(daemon(STOPPED), _props(onDemand=True)) == ""


def test_a_fault_is_told_once_and_remembered(daemon, tmp_path, capsys):  # F63
    daemon(STOPPED)
    props = _props(folder=str(tmp_path), healthy=True)
    assert ProgramProvider().diff("web", props, props).changes
    assert ProgramProvider().diff("web", props, props).changes
    assert capsys.readouterr().err.count("web is stopped") == 1
    daemon(RUNS, 3600)
    assert ProgramProvider().diff("web", props | {"healthy": False}, props).changes


def test_a_supervisord_that_is_gone_stays_in_the_state_and_differs(daemon, tmp_path):  # F63
    daemon("silent")
    props = {"folder": str(tmp_path), "mark": MARK, "ports": {"webPort": free_ports(1)}}
    assert DaemonProvider().diff("x", props, props).changes
    assert DaemonProvider().read("x", props).outs == {**props, "healthy": False}
