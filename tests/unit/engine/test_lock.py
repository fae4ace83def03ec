"""Locks: a live one is respected despite its clock, pid or container; a dead one is taken over."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from engine import files, lock
from engine.errors import EngineError
from engine.state import Backend
from tests.waiting import wait_for

# Says "held", and holds the stack until its standard input ends; or says why it does not.
HOLDER = """
import sys
from pathlib import Path
from engine import state
from engine.errors import EngineError
if len(sys.argv) > 2:
    state.now = lambda: sys.argv[2]
try:
    with state.Backend("file://" + sys.argv[1], Path()).lock("files", "dev") as notes:
        print("held", *notes, flush=True)
        sys.stdin.read()
except EngineError as error:
    print(error, flush=True)
"""
LOCK = '{"pid": %s, "username": "ada", "hostname": "b", "timestamp": "c", "bootId": ""}'
NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
A_WHILE_AGO = "2001-01-01T00:00:00Z"
NFS = 0x6969  # as statfs(2) has it
GONE = "of a process that has ended"


def _can_make_namespaces():
    done = subprocess.run([*NAMESPACE, "true"], check=False, capture_output=True)
    return done.returncode == 0


needs_namespaces = pytest.mark.skipif(
    shutil.which("unshare") is None or not _can_make_namespaces(),
    reason="another PID namespace needs root",
)


class Processes:
    def __init__(self, root):
        self.backend = Backend(f"file://{root}", Path())
        self.folder = self.backend.folder / "locks/organization/files/dev"
        self._root = root
        self._started = []

    def holder(self, *arguments, before=()):
        """A process that asks for the stack, and its answer."""
        process = self.start(*before, sys.executable, "-c", HOLDER, str(self._root), *arguments)
        return process, process.stdout.readline()

    def start(self, *command):
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._started.append(process)
        return process

    def write(self, name="other", **fields):
        """A lock as the pulumi CLI writes it, except for the given fields."""
        self.folder.mkdir(parents=True, exist_ok=True)
        content = {
            "pid": os.getpid(),
            "username": "ada",
            "hostname": socket.gethostname(),
            "timestamp": A_WHILE_AGO,
        }
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(content | fields))
        return path

    def take(self):
        """Hold the stack for a moment; the notes."""
        with self.backend.lock("files", "dev") as notes:
            return notes

    def end(self):
        for process in self._started:
            process.kill()
            process.communicate()


@pytest.fixture
def processes(tmp_path):
    running = Processes(tmp_path)
    yield running
    running.end()


def _wait_for_end(process):
    """Wait until only its parent, this process, still knows it."""
    of = psutil.Process(process.pid)
    wait_for("its end", lambda: of.status() == psutil.STATUS_ZOMBIE, 20)


def _gone_pid():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid


def test_a_lock_says_what_the_cli_reads_and_who_holds_it(processes):  # F13
    with processes.backend.lock("files", "dev") as notes:
        [path] = processes.folder.iterdir()  # the CLI takes every file there for a lock
        content = json.loads(path.read_text())
        assert path.stat().st_mode & 0o777 == 0o600
    assert notes == []
    assert content["pid"] == os.getpid()
    assert content["hostname"] == socket.gethostname()
    assert content["username"]
    assert content["timestamp"].endswith("Z")
    assert content["bootId"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert content["pidNamespace"].startswith("pid:[")
    ticks = os.sysconf("SC_CLK_TCK")
    started = psutil.Process().create_time() - psutil.boot_time()
    assert content["processStart"] / ticks == pytest.approx(started, abs=1)
    assert list(processes.folder.iterdir()) == []
    before = psutil.Process().num_fds()
    processes.take()
    assert psutil.Process().num_fds() == before


def test_a_live_lock_survives_a_clock_that_steps(processes):  # F14 F42
    # The clock was set forward since: by it the process began long after it made its lock.
    _, said = processes.holder(A_WHILE_AGO)
    assert said == "held\n"
    with pytest.raises(EngineError, match=f"locked by .* since {A_WHILE_AGO}; wait for that"):
        processes.take()


@needs_namespaces
def test_a_live_lock_survives_a_container_with_the_same_host_name(processes):  # F14
    _, said = processes.holder()
    assert said == "held\n"
    _, said = processes.holder(before=NAMESPACE)  # where no process has the first one's pid
    assert "the stack is locked by" in said


@needs_namespaces
def test_a_live_lock_of_a_container_is_respected(processes):  # F14
    _, said = processes.holder(before=NAMESPACE)
    assert said == "held\n"
    with pytest.raises(EngineError, match=r"\(pid 1\).*wait for that process"):
        processes.take()


@pytest.mark.parametrize("reaped", [True, False])
def test_the_lock_of_a_killed_engine_is_taken_over(processes, reaped):  # F13
    process, said = processes.holder()
    assert said == "held\n"
    process.send_signal(signal.SIGKILL)
    process.wait() if reaped else _wait_for_end(process)
    [note] = processes.take()
    assert f"(pid {process.pid})" in note
    assert "was removed: that process is dead" in note
    assert list(processes.folder.iterdir()) == []


def _marks(**fields):
    return {
        "bootId": lock._boot(),
        "pidNamespace": lock._namespace(),
        "machineId": lock._machine(),
        "processStart": lock._status(os.getpid())[1],
        "ownFile": __file__,
    } | fields


@pytest.fixture
def network(processes, monkeypatch):
    """The locks are on a file system of other machines too."""
    found = lock._is_local
    monkeypatch.setattr(
        lock,
        "_is_local",
        lambda path: not path.is_relative_to(processes.backend.folder) and found(path),
    )


@pytest.mark.parametrize(
    ("fields", "dead"),
    [
        ({"processStart": 1}, True),  # the pid was reused
        ({}, False),
        ({"pid": GONE}, True),
        ({"pid": GONE, "bootId": "another"}, False),
        ({"processStart": 1, "bootId": "another"}, False),
        ({"processStart": 1, "pidNamespace": "pid:[1]"}, False),
        # From another machine that was restored from the same snapshot.
        ({"processStart": 1, "hostname": "runner-2"}, False),
        ({"processStart": 1, "machineId": "another"}, False),
        ({"processStart": 1, "ownFile": "/tmp/trainyard-0-another"}, False),
        ({"processStart": 1, "ownFile": "/proc/self/status"}, False),  # it is on each machine
    ],
)
@pytest.mark.usefixtures("network")
def test_on_a_network_file_system_an_flock_is_not_enough(processes, fields, dead):  # F13 F52
    if fields.get("pid") == GONE:
        fields = fields | {"pid": _gone_pid()}
    path = processes.write(**_marks(**fields))
    if dead:
        assert len(processes.take()) == 1
        return
    with pytest.raises(EngineError, match=r"may|when you are sure.* cancel -s dev"):
        processes.take()
    assert path.exists()


@pytest.mark.usefixtures("network")
def test_a_file_into_whose_folder_nobody_may_look_tells_nothing(processes, monkeypatch):  # F52
    """Like the lock of another user, who has a private folder for temporary files."""
    processes.write(**_marks(processStart=1, ownFile="/tmp/user/1000/trainyard-lock-1"))
    is_file = Path.is_file

    def refused(path):
        if path.name == "trainyard-lock-1":
            raise PermissionError(13, "Permission denied", str(path))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", refused)
    with pytest.raises(EngineError, match=r"when you are sure.* cancel -s dev"):
        processes.take()
    assert len(lock.cancel(processes.folder)) == 1


@pytest.mark.usefixtures("network")
def test_on_a_network_file_system_a_lock_has_a_file_of_its_machine(processes):  # F52
    with processes.backend.lock("files", "dev"):
        [path] = processes.folder.iterdir()
        own = Path(json.loads(path.read_text())["ownFile"])
        assert own.is_file()
    assert not own.exists()


@pytest.mark.usefixtures("network")
def test_on_a_network_file_system_a_process_that_is_hidden_may_live(processes, monkeypatch):  # F14
    processes.write(**_marks(processStart=1))

    def hidden(pid):
        raise PermissionError(pid)

    monkeypatch.setattr(lock, "_status", hidden)
    with pytest.raises(EngineError, match="cancel -s dev"):
        processes.take()


@pytest.mark.usefixtures("network")
def test_on_a_network_file_system_a_process_that_waits_to_be_reaped_is_dead(processes):  # F13
    process = processes.start("true")
    _wait_for_end(process)
    processes.write(pid=process.pid, **_marks(processStart=lock._status(process.pid)[1]))
    assert len(processes.take()) == 1


def test_after_a_reboot_no_lock_on_an_own_disk_is_alive(processes, monkeypatch):  # F13 F42
    monkeypatch.setattr(lock, "LOCAL", {NFS})
    processes.write(**_marks(bootId="before"))
    with pytest.raises(EngineError, match="cancel"):
        processes.take()
    monkeypatch.undo()
    assert len(processes.take()) == 1


@pytest.mark.skipif(shutil.which("stat") is None, reason="needs stat")
def test_the_file_system_itself_is_asked(tmp_path, monkeypatch):  # F80
    """A root in no mount table has an answer, and a network's is not this machine's."""
    assert NFS not in lock.LOCAL
    assert not lock._is_local(Path("/proc"))
    for path in (tmp_path, Path("/proc")):
        shown = subprocess.check_output(["stat", "-f", "-c", "%t", path], text=True)
        monkeypatch.setattr(lock, "LOCAL", {int(shown, 16)})
        assert lock._is_local(path)
        assert not lock._is_local(path / "nowhere")


def test_the_lock_of_a_dead_cli_is_taken_over(processes, monkeypatch):  # F13
    monkeypatch.setattr(lock, "FIRST_NAMESPACE", lock._namespace())
    processes.write(pid=_gone_pid())
    assert len(processes.take()) == 1
    processes.write()  # its pid was given to this process, which is not pulumi
    assert len(processes.take()) == 1


@pytest.mark.parametrize("doubt", ["host", "file system", "namespace", "hidden"])
def test_in_doubt_the_lock_of_a_cli_is_respected(processes, monkeypatch, doubt):  # F13
    monkeypatch.setattr(lock, "FIRST_NAMESPACE", lock._namespace())
    if doubt == "file system":
        monkeypatch.setattr(lock, "_is_local", lambda _: False)
    if doubt == "namespace":
        monkeypatch.setattr(lock, "FIRST_NAMESPACE", "pid:[1]")
    if doubt == "hidden":
        real = Path.read_bytes

        def hidden(path):
            if path == Path("/proc/1/status"):
                raise PermissionError
            return real(path)

        monkeypatch.setattr(Path, "read_bytes", hidden)
    more = {"hostname": "elsewhere"} if doubt == "host" else {}
    path = processes.write(pid=_gone_pid(), **more)
    with pytest.raises(EngineError, match=r"locked by ada@.* when you are sure .*cancel -s dev"):
        processes.take()
    assert path.exists()


@pytest.mark.parametrize("before", [[], NAMESPACE], ids=["here", "in a container"])
def test_a_live_cli_is_respected(processes, monkeypatch, tmp_path, before):  # F14 F42
    if before and not _can_make_namespaces():
        pytest.skip("another PID namespace needs root")
    monkeypatch.setattr(lock, "FIRST_NAMESPACE", lock._namespace())
    program = tmp_path / "pulumi"
    shutil.copy(shutil.which("sleep"), program)
    process = processes.start(*before, str(program), "60")
    inside = wait_for("its start", lambda: _called_pulumi(process.pid), 20)
    path = processes.write(pid=inside)
    with pytest.raises(EngineError, match=f"pid {inside}"):
        processes.take()
    assert path.exists()


def _called_pulumi(pid):
    """The pid of a started program, or of its child in a namespace, in its own view."""
    for each in [psutil.Process(pid), *psutil.Process(pid).children()]:
        if each.name() == "pulumi":
            status = Path(f"/proc/{each.pid}/status").read_text()
            return int(status.partition("NSpid:")[2].splitlines()[0].split()[-1])
    return None


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", '{"pid": 1}', '{"pid": {}}', "[" * 60_000, "1" * 9999, '{"pid": 1e999}'),
        *(LOCK % pid for pid in ("1e999", "true", "0", "-1", "2147483648", "1.5", "[]", '"1"')),
        (LOCK % 1).replace('"ada"', "{}"),
        (LOCK % 1).replace("ada", "a" * 70_000),
    ],
)
def test_a_lock_that_says_nothing_is_respected(processes, content):  # F80
    path = processes.write()
    path.write_text(content)
    with pytest.raises(EngineError, match=r"an unknown process, by the lock .*other.json"):
        processes.take()
    assert "an unknown process" in lock.in_use_by(processes.folder)
    [who] = lock.cancel(processes.folder)
    assert "an unknown process" in who
    assert not path.exists()


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_a_lock_that_is_no_file_is_one_message(processes, make):  # F80
    path = processes.write("odd")
    path.unlink()
    make(path)
    with pytest.raises(EngineError, match=r"odd.json"):
        processes.take()
    if path.is_dir():
        with pytest.raises(EngineError, match=r"odd.json cannot be removed .*: remove it by hand"):
            lock.cancel(processes.folder)
    else:
        assert len(lock.cancel(processes.folder)) == 1


def test_a_lock_that_is_a_link_or_gone_is_no_file_to_read(processes, tmp_path):
    processes.write().unlink()
    link = processes.folder / "link.json"
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(EngineError, match=r"link.json cannot be read"):
        processes.take()
    link.unlink()
    assert lock.judge(processes.folder / "none.json").verdict is lock.MakerState.GONE


def test_a_lock_that_goes_while_it_is_read_is_no_dead_one(processes, monkeypatch):
    path = processes.write(**_marks())
    real = lock.fcntl.flock

    def flock(file, how):
        path.unlink(missing_ok=True)
        real(file, how)

    monkeypatch.setattr(lock.fcntl, "flock", flock)
    assert lock.judge(path).verdict is lock.MakerState.GONE
    monkeypatch.undo()
    assert processes.take() == []
    monkeypatch.setattr(Path, "glob", lambda *_: [path])  # it is listed, and then gone
    assert lock._clear(processes.folder) == []


def test_a_cli_that_came_at_the_same_moment_wins(processes, monkeypatch):  # F14
    real = files.begin

    def begin(*arguments, **options):
        processes.write("cli", hostname="elsewhere")
        return real(*arguments, **options)

    monkeypatch.setattr(files, "begin", begin)
    with pytest.raises(EngineError, match="locked by ada@elsewhere"):
        processes.take()
    assert [path.name for path in processes.folder.iterdir()] == ["cli.json"]


def test_a_lock_that_cannot_be_written_is_one_message_and_leaves_none(processes, monkeypatch, full):
    processes.take()
    monkeypatch.setattr(files, "sync_folder", full)
    with pytest.raises(EngineError, match=r"No space left on device.*PULUMI_BACKEND_URL"):
        processes.take()
    assert list(processes.folder.iterdir()) == []


def test_cancel_removes_what_may_be_dead_and_nothing_that_lives(processes):  # F13
    processes.write("one", hostname="elsewhere")
    processes.write("two").write_text("")
    one, two = processes.backend.unlock("files", "dev")
    assert one == f"ada@elsewhere (pid {os.getpid()}) since {A_WHILE_AGO}"  # F51
    assert "an unknown process, by the lock" in two
    with processes.backend.lock("files", "dev"):
        with pytest.raises(EngineError, match=f"pid {os.getpid()}.* is alive and works on"):
            processes.backend.unlock("files", "dev")
        assert len(list(processes.folder.iterdir())) == 1
    assert processes.backend.unlock("files", "dev") == []


@pytest.mark.parametrize(
    ("name", "content", "stays"),
    [
        ("trainyard-lock-1-a", "", False),
        ("trainyard-lock-1-a", "text", True),
        ("authorized_keys", "", True),
    ],
)
def test_with_a_lock_goes_its_own_file_and_no_file_that_a_stranger_names(  # F52
    tmp_path, name, content, stays
):
    path = tmp_path / name
    path.write_text(content)
    lock.remove_own({"ownFile": str(path)})
    assert path.exists() is stays
