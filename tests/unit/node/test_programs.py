"""What is done on the machine itself; the rest needs a real supervisord."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from node import agent, folders, owned_processes, programs
from node.folders import FolderMark
from node.life import ServiceError
from node.programs import Data, Files
from node.supervisor import Supervisor
from tests.waiting import wait_for

MARK = {"id": "0123abcd", "project": "p", "stack": "s", "by": "ada@here"}


@pytest.fixture
def files(tmp_path):
    """Properties of secret files, in a folder that the stack has."""
    folders.take(tmp_path / "s", FolderMark.of(MARK), "stateDir")
    secrets = {"token": "a", "keys": "b"}
    folder = str(tmp_path / "s")
    return {"folder": folder, "name": "ray-node", "secrets": secrets, "mark": MARK}


@pytest.mark.usefixtures("open_umask")
def test_files_are_private_and_no_other_is_there(files):  # F35 F38
    id_, made = Files().create(files)
    folder = Path(files["folder"]) / "ray-node" / "files"
    assert (id_, made) == (str(folder), files)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.read_text() for path in folder.iterdir()} == files["secrets"]
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    news = files | {"secrets": {"token": "c"}}
    assert Files().update(files, news) == news
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"token": "c"}


def test_files_that_were_changed_are_not_there(files):
    id_, _ = Files().create(files)
    assert Files().read(id_, files) == files
    assert Files().read(id_, files | {"secrets": {"token": "b"}}) is None
    (Path(id_) / "token").unlink()
    assert Files().read(id_, files) is None
    assert Files().find(files) is None


def test_no_secret_is_written_into_a_folder_of_another(files):  # F46
    other = files | {"mark": MARK | {"id": "4567abcd"}}
    with pytest.raises(ServiceError, match="belongs to stack s of project p, made by ada@here"):
        Files().create(other)
    id_, _ = Files().create(files)
    assert Files().read(id_, other) is None
    Files().delete(id_, other)
    assert Files().read(id_, files) == files
    Path(files["folder"]).chmod(0o755)
    with pytest.raises(ServiceError, match="has mode 0755"):
        Files().create(files)
    assert Files().read(id_, files) is None


def test_what_the_launcher_started_ends_with_its_files_and_an_editor_does_not(files):
    id_, _ = Files().create(files)
    sleep = [sys.executable, "-c", "import time; time.sleep(600)", f"{files['folder']}/ray-node/x"]
    label = {owned_processes.STACK: FolderMark.of(MARK).label}
    with (
        subprocess.Popen(sleep, env=label) as ours,
        subprocess.Popen(sleep, env={}) as editor,
        subprocess.Popen(
            sleep, env={owned_processes.STACK: FolderMark.of(MARK | {"id": "4567abcd"}).label}
        ) as other,
    ):
        try:
            Files().delete(id_, files)
            ours.wait(10)
            assert editor.poll() is None
            assert other.poll() is None
        finally:
            for process in (ours, editor, other):
                process.kill()
    assert not Path(id_).parent.exists()
    Files().delete(id_, files)


@pytest.fixture
def data(tmp_path):
    """Properties of a data folder that is kept."""
    return {"folder": str(tmp_path / "data"), "keep": True, "mark": MARK, "ports": {}}


def test_data_that_is_kept_is_told_and_any_stack_may_have_it_next(data):
    folder = Path(data["folder"])
    Data().create(data)
    assert folder.stat().st_mode & 0o777 == 0o700
    (folder / "result").write_text("x")
    assert Data().read(data["folder"], data) == data
    assert Data().delete(data["folder"], data).startswith(f"kept: {folder} ")
    later = data | {"keep": False, "mark": MARK | {"id": "4567abcd"}}
    Data().create(later)
    assert (folder / "result").exists()
    assert Data().read(data["folder"], data) is None
    assert Data().delete(data["folder"], later) == ""
    assert not folder.exists()


def test_empty_data_is_not_kept(data):
    Data().create(data)
    (Path(data["folder"]) / "minio").mkdir()
    assert Data().delete(data["folder"], data) == ""
    assert not Path(data["folder"]).exists()


def test_data_that_bears_no_mark_of_the_stack_is_not_removed(data):  # F46
    data["keep"] = False
    Data().create(data)
    folder = Path(data["folder"])
    (folder / "result").write_text("x")
    other = data | {"mark": MARK | {"id": "4567abcd"}}
    with pytest.raises(folders.ServiceError, match="made by ada@here"):
        Data().create(other)
    assert "made by ada@here" in Data().delete(data["folder"], other)
    (folder / folders.FILE).unlink()
    assert "bears no mark" in Data().delete(data["folder"], data)
    assert (folder / "result").exists()


@pytest.fixture
def ask(monkeypatch, capsys):
    """Ask the agent; its answer."""

    def asked(**request):
        monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(request)))
        assert agent.main() == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    return asked


def test_the_agent_answers_what_the_kind_does(ask, tmp_path):
    props = {"folder": str(tmp_path / "data"), "keep": False, "mark": MARK, "ports": {}}
    create = {"kind": "data", "method": "create", "arguments": [props]}
    assert ask(**create) == {"result": [props["folder"], props]}
    read = {"kind": "data", "method": "read", "arguments": [props["folder"], props]}
    assert ask(**read) == {"result": props}


def test_whatever_goes_wrong_there_is_an_answer(ask, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    props = {"folder": str(tmp_path / "file" / "data"), "keep": False, "mark": MARK, "ports": {}}
    answer = ask(kind="data", method="create", arguments=[props])
    assert "Not a directory" in answer["error"]

    class Kind:
        def create(self, _props):
            raise RuntimeError

    monkeypatch.setitem(programs.KINDS, "data", Kind())
    assert ask(kind="data", method="create", arguments=[props]) == {"error": "RuntimeError()"}


def test_another_store_does_not_take_the_place_of_one_that_runs(data):
    Data().create(data)
    olds = data | {"store": "minio"}
    news = olds | {"store": "versitygw"}
    with pytest.raises(programs.ServiceError) as raised:
        Data().update(olds, news)
    message = str(raised.value)
    assert "objectStore is now versitygw, and this stack runs minio" in message
    assert f"{data['folder']}/minio" in message
    assert "Nothing was changed. Set objectStore to minio" in message
    # A folder of this machine stays readable, and one of nothing has nothing to lose.
    for before, after in (("", "minio"), ("minio", ""), ("minio", "minio")):
        Data().update(olds | {"store": before}, olds | {"store": after})


def test_the_timer_that_a_killed_up_did_not_start_is_missed(monkeypatch, tmp_path):  # F82
    monkeypatch.setattr(Supervisor, "alive", lambda _: True)
    props = {"folder": str(tmp_path), "mark": MARK, "reservation": {"end": "2030-01-01"}}
    for runs in (True, False):
        monkeypatch.setattr(Supervisor, "running", lambda _, name, runs=runs: runs)
        _, found = programs.Daemon().find(props)
        assert bool(found["reservation"]) is runs


def test_a_later_end_is_told_and_starts_containers_that_had_ended(  # D3 F82
    monkeypatch, tmp_path, engine
):
    told = []
    monkeypatch.setenv("DOCKER_HOST", "unix:///other.sock")
    monkeypatch.setattr(Supervisor, "alive", lambda _: True)
    monkeypatch.setattr(Supervisor, "add", lambda _, definition: told.append(definition))
    monkeypatch.setattr(Supervisor, "remove", lambda _, name: told.append(name))
    engine.add("head", "exited")
    props = {"folder": str(tmp_path), "mark": MARK, "ports": {}}
    where = {"ends": "containers", "network": "lab", "notebook": None, "socket": engine.path}
    for own in ({}, where):
        olds = props | {"reservation": {"end": "2030-01-01T00:00:00+00:00", **own}}
        news = props | {"reservation": {"end": "2031-01-01T00:00:00+00:00", **own}}
        programs.Daemon().update(news, news)
        assert told == []
        programs.Daemon().update(olds, news)
        definition = told.pop()
        (settings,) = map(json.loads, definition.files.values())
        whose = {"ends": "programs", "folder": str(tmp_path), "mark": MARK}
        assert settings == whose | news["reservation"]
        assert ("DOCKER_HOST" in definition.environment) is bool(own)
        code = Path(definition.environment["PYTHONPATH"])  # alone: a machine has no checkout
        assert (code / f"{definition.command[3].replace('.', '/')}.py").is_file()
    assert engine.calls == ["start head"]
    programs.Daemon().update(olds, props)
    assert told == ["reservation-end"]


def test_jobs_that_go_on_without_supervisord_are_its_users(monkeypatch, tmp_path):  # F57 F63
    variables = os.environ | {programs.JOB: "{}"}
    with subprocess.Popen(["sleep", "60"], env=variables) as job:
        found = [psutil.Process(), psutil.Process(job.pid)]
        # For a moment a new process has no environment yet.
        wait_for("its variables", lambda: programs.JOB in found[1].environ(), 20)
        monkeypatch.setattr(owned_processes, "of_supervisord", lambda *_: found)
        props = {"folder": str(tmp_path / "s"), "mark": MARK}
        assert programs.Daemon().users(props) == [f"process {job.pid}"]
        monkeypatch.setattr(Supervisor, "alive", lambda _: True)
        assert programs.Daemon().users(props) == []
        job.kill()


def test_logs_are_read_although_nothing_runs(tmp_path):
    props = {"folder": str(tmp_path), "name": "web", "mark": MARK, "health": [], "ports": []}
    (tmp_path / "web").mkdir()
    (tmp_path / "web/log").write_text("a\nb\n")
    (tmp_path / "supervisord.log").write_text("c\nd\n")
    assert programs.Program().log(1, props) == ["b"]
    assert programs.Daemon().log(5, props) == ["c", "d"]
