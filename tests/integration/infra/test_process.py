"""The process runtime on a real supervisord."""

import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import psutil
import pytest

from cluster import ray_node
from cluster.provider import FORCE
from infra.machines.process import DaemonProvider, DataProvider, ProgramProvider
from infra.service import leaving
from node import claims, ending, supervisor
from node.folders import FolderMark
from node.life import ServiceError
from node.supervisor import Definition, Supervisor
from tests.flocks import is_locked
from tests.killing import kill
from tests.waiting import wait_for
from tests.web_program import SERVE, web_program

pytestmark = pytest.mark.integration

MARK = {"id": "0123abcd", "project": "trainyard", "stack": "dev", "by": "ada@here"}
DEFINITION = {"name": "web", "command": ["true"], "environment": {}, "files": {}}
DEFINITION |= {"folders": [], "stop_seconds": 1}
OTHER = {**MARK, "id": "4567abcd", "by": "bob@there"}


@pytest.fixture
def daemon(short_folder) -> Iterator[dict[str, Any]]:
    """Properties of a supervisord that runs."""
    data = {"folder": str(short_folder / "d"), "keep": False, "mark": MARK, "ports": {}}
    DataProvider().create(data)
    props = {
        "folder": str(short_folder / "s"),
        "identifier": "test",
        "ports": {},
        "mark": MARK,
        "data": data["folder"],
    }
    DaemonProvider().create(props)
    yield props
    DaemonProvider().delete(props["folder"], props)
    claims.release(MARK["id"])


@pytest.fixture
def program(daemon, free_port) -> Callable[..., dict[str, Any]]:
    """Properties of a program; a web server unless a test says otherwise."""

    def build(name: str = "web", **changes: Any) -> dict[str, Any]:
        return web_program(daemon["folder"], free_port(), MARK, name=name, **changes)

    return build


def _supervisor(props: dict[str, Any]) -> Supervisor:
    return Supervisor(folder=Path(props["folder"]), mark=FolderMark.of(props["mark"]))


def _pid(props: dict[str, Any]) -> int:
    state = _supervisor(props).state(props["name"])
    assert state is not None
    return int(state["pid"])


def test_what_a_program_leaves_in_its_temporary_folder_goes_with_it(program):
    leave = "import sys, tempfile; print(tempfile.mkdtemp(), file=open(sys.argv.pop(), 'w'))"
    serve = "import runpy; runpy.run_module('http.server', run_name='__main__')"
    props = program()
    said = Path(props["folder"]) / "said"
    port = str(int(props["ports"][0]["number"]))
    props["command"] = [sys.executable, "-c", f"{leave}\n{serve}", *SERVE[3:], port, str(said)]
    made = ProgramProvider().create(props)
    left = Path(said.read_text().strip())
    assert left.is_relative_to(Path(props["folder"]) / "web")
    kill(lambda: _pid(props))
    assert left.is_dir()
    ProgramProvider().delete(made.id, props)
    assert not left.exists()


LEAVE = """
import json, sys, time
said, users, *rest = sys.argv[1:]
with open(said, "a") as file:
    print(*rest, file=file)
if rest[0] == "drain":
    time.sleep(0.5)
    with open(said, "a") as file:
        print("left", file=file)
print(json.dumps(users.split()))
"""


def test_users_leave_before_a_program_starts_anew_of_one_after_another(
    program, tmp_path, monkeypatch, capsys
):
    said = tmp_path / "said"

    def used(name: str, *, drains: bool, users: str = "job-1 job-2") -> dict[str, Any]:
        leave = {"file": "leave.py", "arguments": [str(said), users]}
        return program(
            name,
            files={"leave.py": LEAVE},
            leave=leave | {"drains": drains, "seconds": 7},
        )

    def restarted(props: dict[str, Any]) -> dict[str, Any]:
        return props | {"environment": {"A": "1"}}

    workers = [used(f"worker-{index}", drains=True) for index in range(2)]
    for props in workers:
        ProgramProvider().create(props)
    pids = [_pid(props) for props in workers]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda p: ProgramProvider().update("w", p, restarted(p)), workers))
    # The order of requests varies, but one has left before the other is told to.
    assert [line for line in said.read_text().splitlines() if line != "users"] == [
        *("drain 7", "left"),
        *("drain 7", "left"),
    ]
    assert "worker-0 is drained, for at most 7 s: job-1, job-2" in capsys.readouterr().err
    assert not any(psutil.pid_exists(pid) for pid in pids)
    said.unlink()
    # A change that restarts nothing asks nobody.
    ProgramProvider().update("w", workers[0], workers[0] | {"startTimeout": 21.0})
    assert not said.exists()

    # With another token a worker leaves the cluster, whose jobs would be lost as with the head.
    other = workers[0] | {"secrets": {ray_node.TOKEN_FILE: "other"}}  # F43
    with pytest.raises(ServiceError, match=r"worker-0 .* its jobs would be lost: job-1, job-2\."):
        ProgramProvider().update("w", workers[0], other)
    said.unlink()

    head = used("head", drains=False)
    ProgramProvider().create(head)
    pid = _pid(head)
    monkeypatch.setenv(FORCE, "1")
    ProgramProvider().update("head", head, restarted(head))
    assert _pid(head) != pid
    # Its runs keep their progress.
    assert said.read_text().splitlines() == ["users", "drain 7", "left"]

    # A `destroy` waits for nobody. A change that removes a worker is known by its declarations.
    said.unlink()
    monkeypatch.setattr(leaving, "_declares", Event())
    ProgramProvider().delete("worker-0", workers[0])
    assert not said.exists()
    ProgramProvider().check({}, head)
    ProgramProvider().delete("worker-1", workers[1])
    assert said.read_text().splitlines() == ["users", "drain 7", "left"]
    # One that cannot be asked may be removed since it is broken.
    broken = used("worker-2", drains=True)
    ProgramProvider().create(broken)
    (Path(broken["folder"]) / "worker-2/files/leave.py").unlink()
    ProgramProvider().delete("worker-2", broken)
    assert "worker-2 is removed without a drain: cannot find out who" in capsys.readouterr().err
    assert not (Path(broken["folder"]) / "worker-2").exists()


def test_a_killed_supervisord_is_noticed_and_leaves_no_orphan(program, daemon, started_below):
    props = program()
    ProgramProvider().create(props)
    orphan = _pid(props)
    folders = [daemon["folder"], daemon["data"]]
    assert [is_locked(folder) for folder in folders] == [True, True]  # F42
    supervisord = psutil.Process(int((Path(daemon["folder"]) / "supervisord.pid").read_text()))
    supervisord.kill()
    supervisord.wait(10)
    assert psutil.pid_exists(orphan)
    assert [is_locked(folder) for folder in folders] == [False, False], "held by what it started"
    for provider, made in ((DaemonProvider(), daemon), (ProgramProvider(), props)):  # F63
        assert provider.read("x", made).outs == {**made, "healthy": False}
        assert provider.diff("x", made, made).changes
    assert orphan in [process.pid for process in started_below(Path(daemon["folder"]))]
    with pytest.raises(ServiceError, match="Run `up` again"):
        ProgramProvider().create(program("other"))
    held = {**daemon, "ports": {"testPort": [props["ports"][0]["number"]]}}
    DaemonProvider().update("x", daemon, held)
    assert started_below(Path(daemon["folder"]))
    assert orphan not in [process.pid for process in started_below(Path(daemon["folder"]))]
    ProgramProvider().update("web", props, props)
    assert not ProgramProvider().diff("web", props, props).changes
    names = [process.name() for process in started_below(Path(daemon["folder"]))]
    assert len(names) == 2, names  # supervisord and the one program


def _write_again(folder: Path) -> None:
    """Write like a service that lost its folder: Ray makes its session's folder again."""
    (folder / "ray" / "session").mkdir(parents=True)
    (folder / "ray" / "session" / "log").write_text("still here")


@pytest.mark.parametrize(
    ("rebooted", "written"),
    [(True, False), (False, False), (False, True)],
    ids=["reboot", "folder cleaned away", "cleaned away and written to again"],
)
def test_a_removed_folder_is_noticed_and_everything_runs_once_afterwards(  # F42
    rebooted, written, program, daemon, started_below
):
    everyone = [program(name) for name in ("web", "more")]
    for props in everyone:
        ProgramProvider().create(props)
    folder = Path(daemon["folder"])
    family = started_below(folder)
    before = {process.pid for process in family}
    assert len(before) == 3
    if rebooted:
        for process in family:
            process.kill()
        assert not psutil.wait_procs(family, timeout=30)[1]
    shutil.rmtree(folder)
    if written:
        _write_again(folder)
    assert DaemonProvider().read("x", daemon).id == ""
    assert [ProgramProvider().read(p["name"], p).id for p in everyone] == ["", ""]
    held = {"testPort": [int(props["ports"][0]["number"]) for props in everyone]}
    DaemonProvider().create({**daemon, "ports": held})
    for props in everyone:
        ProgramProvider().create(props)
    after = {process.pid for process in started_below(folder)}
    assert len(after) == 3, started_below(folder)
    assert not before & after


def test_a_file_of_a_program_that_a_cleaner_removed_is_noticed(program, started_below):  # F42
    props = program(files={"config": "a: 1"})
    ProgramProvider().create(props)
    (Path(props["folder"]) / "web" / "files" / "config").unlink()
    assert ProgramProvider().read("web", props).id == ""
    ProgramProvider().create(props)
    assert ProgramProvider().read("web", props).id == "web"
    assert len(started_below(Path(props["folder"]))) == 2


def test_a_destroy_ends_what_lost_its_folder(program, daemon, started_below):  # F42
    props = program()
    ProgramProvider().create(props)
    shutil.rmtree(daemon["folder"])
    _write_again(Path(daemon["folder"]))
    ProgramProvider().delete("web", props)
    DaemonProvider().delete("x", daemon)
    assert started_below(Path(daemon["folder"])) == []
    assert not Path(daemon["folder"]).exists()


def test_another_stack_of_the_same_name_is_refused_and_nothing_of_it_is_touched(  # F46
    program, daemon, started_below
):
    props = program(secrets={"password": "canary"})
    ProgramProvider().create(props)
    folder = Path(daemon["folder"])
    before = {process.pid for process in started_below(folder)}
    theirs = {**daemon, "mark": OTHER}
    data = {**theirs, "folder": daemon["data"], "keep": False}
    for call in (lambda: DaemonProvider().create(theirs), lambda: DataProvider().create(data)):
        with pytest.raises(
            ServiceError, match="belongs to stack dev of project trainyard, made by"
        ):
            call()
    claims.release(OTHER["id"])
    assert DaemonProvider().read("x", theirs).id == ""
    assert DaemonProvider().find(theirs) is None
    assert ProgramProvider().read("web", {**props, "mark": OTHER}).id == ""
    assert ProgramProvider().find({**props, "mark": OTHER}) is None
    with pytest.raises(ServiceError, match="belongs to stack dev"):
        ProgramProvider().update("web", {**props, "mark": OTHER}, {**props, "mark": OTHER})
    ProgramProvider().delete("web", {**props, "mark": OTHER})
    DaemonProvider().delete("x", theirs)
    # Their folder was removed, but its processes are still theirs.
    folder.rename(folder.with_name("away"))
    with pytest.raises(ServiceError, match="made by ada@here, which is not this one"):
        DaemonProvider().create(theirs)
    folder.with_name("away").rename(folder)
    assert {process.pid for process in started_below(folder)} == before
    assert ProgramProvider().read("web", props).id == "web"


def test_another_checkout_with_the_same_folder_leaves_a_stack_that_is_up(  # F57
    daemon, tmp_path, monkeypatch
):
    def faults() -> list[str]:
        return [fault.reason for fault in DaemonProvider().check(daemon, daemon).failures]

    assert faults() == []
    DaemonProvider().delete("x", daemon)
    assert faults() == []
    theirs = tmp_path / "other" / "node/locked_supervisord.py"
    theirs.parent.mkdir(parents=True)
    shutil.copy(supervisor.LOCKED, theirs)
    with monkeypatch.context() as patch:
        patch.setattr(supervisor, "LOCKED", theirs)
        DaemonProvider().create(daemon)
    assert [fault.partition(":")[0] for fault in faults()] == [
        f"stack dev is up from another checkout, {tmp_path / 'other'}"
    ]
    (tmp_path / "other").rename(tmp_path / "moved")
    assert faults() == []


def test_no_second_supervisord_works_on_the_same_data(daemon, short_folder):  # F42
    second = {**daemon, "folder": str(short_folder / "t")}
    with pytest.raises(ServiceError, match=f"{short_folder}/d is in use by another supervisord"):
        DaemonProvider().create(second)
    DaemonProvider().delete("x", second)
    assert DaemonProvider().read("x", daemon).id


# A socket of another user that says when somebody sends it something.
IMPOSTOR = """
import os, socket, sys
os.umask(0)
os.setresuid(*[int(sys.argv[2])] * 3)  # not earlier: this Python may be below root's home folder
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen()
print("ready", flush=True)
while True:
    if sent := server.accept()[0].recv(99):
        print("sent", sent, flush=True)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start a process of another user")
@pytest.mark.parametrize("owner", ["theirs", "ours"])
def test_nothing_is_sent_to_what_another_user_put_there(short_folder, program, owner):  # F38
    """Their folder, or one of ours that they could once write in, with their socket."""
    folder = short_folder / "u"
    folder.mkdir(mode=0o700)
    uid = 12345
    short_folder.chmod(0o755)
    os.chown(folder, uid, -1)
    server = subprocess.Popen(
        [sys.executable, "-c", IMPOSTOR, str(folder / "supervisor.sock"), str(uid)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        if owner == "ours":
            os.chown(folder, 0, -1)
            (folder / ".trainyard").write_text('{"id": "0123abcd"}')
        props = {"folder": str(folder), "identifier": "test", "ports": {}, "mark": MARK}
        web = program(folder=str(folder), secrets={"password": "canary"})
        found = {} if owner == "theirs" else {**props, "healthy": False}
        assert DaemonProvider().read("x", props).outs == found
        assert DaemonProvider().find(props) is None
        assert ProgramProvider().read("web", web).id == ""
        assert ProgramProvider().find(web) is None
        with pytest.raises(ServiceError, match=f"user {uid}|Run `up` again"):
            ProgramProvider().create(web)
        with pytest.raises(ServiceError, match=f"user {uid}"):
            _supervisor(props).add(Definition(**DEFINITION))
        ProgramProvider().delete("web", web)
        if owner == "theirs":
            with pytest.raises(ServiceError, match=f"belongs to user {uid}"):
                DaemonProvider().create(props)
            DaemonProvider().delete("x", props)
            assert folder.exists()
        else:
            # It is ours to use: their socket goes, and our own supervisord answers.
            DaemonProvider().create(props)
            assert DaemonProvider().read("x", props).id
            DaemonProvider().delete("x", props)
            assert not folder.exists()
    finally:
        server.kill()
        said, _ = server.communicate()
    assert said == ""
    assert not list(short_folder.rglob("password"))


def test_a_program_that_keeps_ending_fails_and_leaves_nothing(program, started_below):  # F31
    script = "sleep 1000 & for i in $(seq 1 30); do echo line $i; done; exit 3"
    props = program(command=["sh", "-c", script], startTimeout=300.0)
    with pytest.raises(ServiceError, match="ended 3 times") as raised:
        ProgramProvider().create(props)
    assert str(raised.value).splitlines()[-20:] == [f"line {number}" for number in range(11, 31)]
    assert not (Path(props["folder"]) / "web").exists()
    assert not [p for p in started_below(Path(props["folder"])) if p.name() == "sleep"]


def test_a_program_that_keeps_ending_after_it_was_up_is_told(program, tmp_path):  # F63
    stop = tmp_path / "stop"
    props = program()
    serve = " ".join(props["command"])
    props["command"] = ["sh", "-c", f"[ -e {stop} ] || exec {serve}; sleep 1; echo no key; exit 3"]
    made = ProgramProvider().create(props).outs
    assert not ProgramProvider().diff("web", made, props).changes
    stop.touch()
    kill(lambda: _pid(props))
    # A busy machine may look for the first time after the fourth.
    said = re.compile(
        r"web ended [3-9] times in the last 10 min \(exit status 3\); its log says: no key"
    )
    wait_for("three ends", lambda: said.search(ProgramProvider().fault("web", props)), 60)
    assert ProgramProvider().read("web", made).outs == {**made, "healthy": False}
    assert ProgramProvider().diff("web", made, props).changes
    with pytest.raises(ServiceError, match="ended 3 times"):
        ProgramProvider().update("web", made, props)
    stop.unlink()


def test_a_held_port_is_an_error_that_names_its_holder(program):  # F17
    props = program()
    port = int(props["ports"][0]["number"])
    with socket.create_server(("127.0.0.1", port)), pytest.raises(ServiceError) as raised:
        ProgramProvider().create(props)
    assert f"port {port} (testPort) is held by" in str(raised.value)
    assert f"pid {os.getpid()}" in str(raised.value)
    ProgramProvider().create(props)


def test_an_update_restarts_only_what_changed(program):
    old = {**program(), "healthy": True}
    ProgramProvider().create(old)
    first = _pid(old)
    longer = {**old, "startTimeout": 30.0}
    assert ProgramProvider().diff("web", old, longer).changes
    ProgramProvider().update("web", old, longer)
    assert _pid(old) == first
    other = {**old, "environment": {"COLOR": "blue"}}
    assert ProgramProvider().diff("web", old, other).changes
    ProgramProvider().update("web", old, other)
    assert _pid(old) != first
    assert psutil.Process(_pid(old)).environ()["COLOR"] == "blue"
    assert not ProgramProvider().diff("web", old, {**old, "healthy": None}).changes


def test_a_program_that_could_not_start_again_goes_on(program):  # F63
    old = program()
    ProgramProvider().create(old)
    first = _pid(old)
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        news = {**old, "ports": [*old["ports"], {"number": port, "setting": "otherPort"}]}
        with pytest.raises(ServiceError, match=rf"port {port} \(otherPort\) is held by"):
            ProgramProvider().update("web", old, {**news, "environment": {"COLOR": "blue"}})
    assert _pid(old) == first


def test_what_an_interrupted_create_left_is_found(program, daemon):
    props = program(command=["sleep", "1000"])
    assert ProgramProvider().find(props) is None
    with ThreadPoolExecutor() as pool:
        cut_off = pool.submit(ProgramProvider().create, {**props, "startTimeout": 3.0})
        while not _supervisor(daemon).running("web"):
            time.sleep(0.02)
        found = ProgramProvider().find(props)
        assert found is not None
        assert found.outs is not None
        assert ProgramProvider().diff("web", found.outs, props).changes, "up must wait for it"
        with pytest.raises(ServiceError):
            cut_off.result()
    assert ProgramProvider().find(props) is None
    assert DaemonProvider().find(daemon) is not None


def test_a_timer_ends_everything_when_the_reservation_is_over(program, daemon, started_below):  # D3
    def until(seconds: float) -> dict[str, Any]:
        end = datetime.now(UTC) + timedelta(seconds=seconds)
        return {**daemon, "reservation": {"end": end.isoformat(), "drainSeconds": 0}}

    folder = Path(daemon["folder"])
    props = program()
    props["command"] = ["sh", "-c", f"setsid sleep 1000 & exec {' '.join(props['command'])}"]
    ProgramProvider().create(props)
    pid, far = _pid(props), until(3600)
    DaemonProvider().update("x", daemon, far)
    timer = {"folder": str(folder), "name": ending.NAME, "mark": MARK}
    # One that does not run is drift; a killed one is started again.
    with _supervisor(daemon)._rpc() as rpc:
        rpc.stopProcess(ending.NAME)
    assert DaemonProvider().read("x", far).outs == {**far, "reservation": None}
    DaemonProvider().update("x", {**far, "reservation": None}, far)
    killed = kill(lambda: _pid(timer))
    wait_for("another timer", lambda: _pid(timer) not in (0, killed), 20)
    assert DaemonProvider().read("x", far).outs == far
    assert _pid(props) == pid, "another end restarts nothing"

    over = until(1)
    DaemonProvider().update("x", far, over)
    wait_for("the end", lambda: not started_below(folder), 60)
    assert DaemonProvider().read("x", over).outs == {**over, "healthy": False}
    assert "all services end" in (folder / ending.NAME / "log").read_text()

    # The timer outlives a supervisord that is killed, and ends what that has started.
    DaemonProvider().create(daemon)
    ProgramProvider().create(props)
    DaemonProvider().update("x", daemon, until(8))
    wait_for("the timer", lambda: _pid(timer), 8)
    kill(lambda: int((folder / "supervisord.pid").read_text()))
    wait_for("the end", lambda: not started_below(folder), 60)


def test_secret_files_are_private_and_everything_ends_with_supervisord(
    program, daemon, started_below
):
    props = program(secrets={"password": "canary"}, files={"config.yml": "a: 1"})
    ProgramProvider().create(props)
    folder = Path(daemon["folder"])
    secret = folder / "web" / "files" / "password"
    assert secret.read_text() == "canary"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert stat.S_IMODE((folder / "supervisor.sock").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    DaemonProvider().delete("x", daemon)
    assert started_below(folder) == []
    assert not folder.exists()


def test_a_program_on_demand_is_declared_and_others_start_it(program):
    props = program(onDemand=True)
    id_, made = ProgramProvider().create(props).id, props
    supervisor = Supervisor(folder=Path(props["folder"]), mark=FolderMark.of(MARK))
    state = supervisor.state("web")
    assert state is not None
    assert state["statename"] == "STOPPED"
    # Whether it runs is not drift, and an update without a change does not stop it.
    assert ProgramProvider().read(id_, made).outs
    with supervisor._rpc() as rpc:
        rpc.startProcess("web", True)
    assert supervisor.running("web")
    assert ProgramProvider().read(id_, made).outs
    ProgramProvider().update(id_, made, made)
    assert supervisor.running("web")
    # A change is applied: it is then again to be started by others.
    ProgramProvider().update(id_, made, {**made, "environment": {"A": "b"}})
    assert not supervisor.running("web")
    ProgramProvider().delete(id_, made)
    assert supervisor.state("web") is None
