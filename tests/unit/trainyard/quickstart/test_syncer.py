"""The checks before a box is asked, and the results that come while a training runs."""

import io
import os
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
import yaml

from tests.fakes.sshd import Sshd
from tests.waiting import wait_for
from trainyard.access import ssh_run as ssh
from trainyard.access.ssh import Connection, UnreachableError
from trainyard.client.errors import ClientError
from trainyard.quickstart import mirror, one_message, ray_config, syncer, trainers
from trainyard.quickstart.packages import Packages
from trainyard.quickstart.syncer import FailedError, Syncer, initialize_ray_with_syncer

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ8Hn9iLHFmFGV2vkYQ0xXrCdU0jBTjH4TQmjA2mLyPb"
BOX = Connection(host="192.0.2.7", user="ann", host_key=KEY)


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "src/train.py").write_text("print()")
    Sshd.new_key(tmp_path / "login")
    values = {
        "driver": {"private_key_file": "~/login"},
        "ray_head": {"hostname_or_ip_address": "127.0.0.1"},
        "worker": {
            "user": "ann",
            "hostname_or_ip_address": "127.0.0.1",
            "ssh_port": 1,
            "base_dir": "~/base",
            "host_key": KEY,
        },
    }
    (folder / "ray_config.yaml").write_text(yaml.safe_dump(values))
    return folder


def _begin(project: Path, results: str = "~/results") -> Syncer:
    return initialize_ray_with_syncer(
        project, project / "src", project / "ray_config.yaml", results
    )


def test_a_box_that_does_not_answer_is_one_line(project, capsys):
    with pytest.raises(SystemExit) as caught, one_message():
        _begin(project)
    said = str(caught.value.code)
    assert said.startswith("error: ann@127.0.0.1:1 cannot be reached by SSH ")
    assert "): is it on" in said
    assert "\n" not in said


def test_the_file_of_another_user_is_refused(project, monkeypatch):  # C11
    file = project / "ray_config.yaml"
    values = yaml.safe_load(file.read_text())
    values["driver"]["user"] = "ann"
    file.write_text(yaml.safe_dump(values))
    monkeypatch.setattr("getpass.getuser", lambda: "bob")
    with pytest.raises(ClientError, match=r"driver\.user is 'ann' and you are 'bob' here: set"):
        _begin(project)
    monkeypatch.setattr("getpass.getuser", lambda: "ann")
    with pytest.raises(UnreachableError):
        _begin(project)


def test_no_key_goes_up(project):  # C18
    key = (project.parent / "login").read_text()
    (project / "src/notes.txt").write_text(f"my key:\n{key}")
    with pytest.raises(ClientError, match=r"notes\.txt in the upload of .* holds a secret"):
        _begin(project)


def test_a_folder_that_is_not_there(project):
    shutil.rmtree(project / "src")
    with pytest.raises(ClientError, match=r"src_dir .* is not a folder"):
        _begin(project)


def test_the_host_key_is_that_of_an_earlier_login(project):  # C10
    config = replace(ray_config.read_ray_config(project / "ray_config.yaml"), host_key="")
    with pytest.raises(ClientError, match=r"host key of 127\.0\.0\.1 is not in .*log in once"):
        syncer._known_host_key(config)
    folder = project.parent / ".ssh"
    folder.mkdir()
    (folder / "known_hosts").write_text(f"other {KEY[:-1]}c\n[127.0.0.1]:1 {KEY} a comment\n")
    login = syncer._connection(config)
    assert (login.host_key, login.private_key) == (KEY, (project.parent / "login").read_text())


def test_results_come_every_ten_seconds():  # C13
    assert syncer.INTERVAL_S == 10  # as docs/box.md says


def test_the_results_folder_is_the_same_below_each_home():  # C12
    assert syncer._there("~/ray-results/", "/there/ann") == "/there/ann/ray-results"
    assert syncer._there("/data/results", "/there/ann") == "/data/results"
    for wrong in ("results", "/", "~", ""):
        with pytest.raises(ClientError, match="give one that begins with"):
            syncer._there(wrong, "/there/ann")


def test_git_links_in_a_circle_and_what_is_no_file_stay_here(project, capsys):  # C5 F59
    source = project / "src"
    (source / ".git").mkdir()
    (source / ".git/pack").touch()
    (source / "round").symlink_to(source)
    os.mkfifo(source / "pipe")
    (source / "tool").touch(0o755)
    assert sent(project) == ["tool", "train.py"]
    left = "pipe (FIFO), round (link to a folder that holds it)"
    assert f"not uploaded of {source}: {left}" in "".join(capsys.readouterr())


def sent(project: Path) -> list[str]:
    with zipfile.ZipFile(io.BytesIO(syncer._packed(project / "src", Packages(), ""))) as archive:
        return archive.namelist()


class Box:
    """In place of a machine: a folder of this one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fault: Exception | None = None
        self.commands: list[str] = []
        self.said = ""
        self.complete = False
        monkeypatch.setattr(syncer, "warn", lambda text: setattr(self, "said", text))
        monkeypatch.setattr(syncer, "INTERVAL_S", 0.01)
        monkeypatch.setattr(mirror.Mirror, "pull", self._pull())
        monkeypatch.setattr(ssh, "run", lambda _, command, **__: self.commands.append(command))

    def _pull(self) -> Callable[..., None]:
        def pull(each: mirror.Mirror, *, last: bool) -> None:
            self.complete = last
            if self.fault:
                raise self.fault
            shutil.copytree(each.there, each.here, dirs_exist_ok=True)

        return pull


@pytest.fixture
def box(monkeypatch) -> Box:
    return Box(monkeypatch)


@pytest.fixture
def made(tmp_path) -> Syncer:
    (tmp_path / "there/run").mkdir(parents=True)
    return Syncer(BOX, str(tmp_path / "there"), tmp_path / "here")


def test_results_come_during_and_after(box, made, tmp_path):  # C13
    there, here = tmp_path / "there/run", tmp_path / "here/run"
    with made.syncing("run"):
        (there / "first").touch()
        wait_for("the first result", (here / "first").exists)
        box.fault = UnreachableError("gone for a while")
        wait_for("a fault that is told", lambda: "gone for a while" in box.said)
        (there / "second").touch()
        box.fault = None
    assert (here / "second").exists()


def test_results_that_cannot_be_fetched_stay_and_you_are_told_how(box, made):
    message = r"the results stay on the box \(gone\); fetch them with: scp -r -P 22 ann@192.0.2.7:/"
    with pytest.raises(ClientError, match=message), made.syncing("run"):
        box.fault = UnreachableError("gone")


def test_a_training_that_fails_says_so_also_if_its_results_cannot_be_fetched(box, made):
    def train(error: BaseException) -> None:
        with one_message(), made.syncing("run"):
            box.fault = UnreachableError("gone")
            raise error

    with pytest.raises(SystemExit) as caught:
        train(ClientError("the training failed"))
    assert caught.value.code == "error: the training failed"
    assert "the results stay on the box (gone)" in box.said
    with pytest.raises(SystemExit) as caught:
        train(KeyboardInterrupt())
    assert caught.value.code == 130


@pytest.mark.parametrize(
    ("error", "complete"),
    [(KeyboardInterrupt(), False), (ClientError("lost"), False), (FailedError("failed"), True)],
)
def test_what_is_still_written_on_the_box_is_not_taken_for_whole(box, made, error, *, complete):
    with pytest.raises(type(error)), made.syncing("run"):
        raise error
    assert box.complete is complete


class Actors:
    """In place of Ray: an actor is an object of this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.alive: dict[str, Any] = {}
        self.fault: BaseException | None = None
        for name in ("remote", "get", "get_actor", "kill"):
            monkeypatch.setattr(ray, name, getattr(self, name))

    def remote(self, kind: type[Any]) -> Any:
        def options(*, name: str, **_: Any) -> Any:
            def begin(*work: Any) -> Any:
                training = kind(*work)
                self.alive[name] = SimpleNamespace(fit=SimpleNamespace(remote=training.fit))
                return self.alive[name]

            return SimpleNamespace(remote=begin)

        return SimpleNamespace(options=options)

    def get(self, value: Any) -> Any:
        if self.fault:
            raise self.fault
        return value

    def get_actor(self, name: str, **_: Any) -> Any:
        if name not in self.alive:
            raise ValueError(name)
        return self.alive[name]

    def kill(self, actor: Any) -> None:
        self.alive = {name: each for name, each in self.alive.items() if each is not actor}


@pytest.fixture
def actors(monkeypatch) -> Actors:
    return Actors(monkeypatch)


def test_a_training_that_was_begun_is_collected_once(box, made, actors, capsys):
    work = (Trainer, (), {"run_config": Config("run")})
    actors.fault = ConnectionError("gone")
    lost = r"192\.0\.2\.7 is lost \(gone\)\. What trains there goes on: start run again"
    with pytest.raises(ClientError, match=lost):
        made.run("run", *work)
    with pytest.raises(ClientError, match=r"run began earlier .* so nothing is removed"):
        made.clean("run")
    assert not box.commands
    actors.fault = None
    assert made.run("run", "never", "used", "here")[0][0] == {"number": 1}
    assert "run is on the box already" in capsys.readouterr().out
    assert not actors.alive


@pytest.mark.parametrize(
    "fault", [KeyboardInterrupt(), ray.exceptions.RayTaskError("fit", "no memory", ValueError())]
)
def test_a_training_that_failed_or_was_interrupted_is_begun_again(box, made, actors, fault):
    actors.fault = fault
    with pytest.raises((KeyboardInterrupt, FailedError)):
        made.run("run", Trainer, (), {"run_config": Config("run")})
    assert not actors.alive


def test_clean_removes_the_run_and_nothing_else(box, made, actors, tmp_path):
    for name in ("run", "other"):  # C4
        (tmp_path / "here" / name).mkdir(parents=True)
    made.clean("run")
    assert box.commands == [f"rm -rf -- {tmp_path}/there/run"]
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["other"]


class Config:
    def __init__(self, name: str | None) -> None:
        self.name = name
        self.storage_path = ""


class Result:
    error = None

    def __init__(self, config: Config, number: int) -> None:
        self.metrics = {"number": number}
        self.path = f"{config.storage_path}/{config.name}/{number}"
        self.checkpoint = None


class Trainer:
    def __init__(self, *, run_config: Config) -> None:
        self.config = run_config

    def fit(self) -> Any:
        return Result(self.config, 1)


class Search(Trainer):
    def fit(self) -> Any:
        return [Result(self.config, 1), Result(self.config, 2)]


def test_outcomes_have_the_paths_of_this_machine(box, made, actors, tmp_path):  # C1
    config = Config("run")

    class Mine(trainers.Synced):
        kind = Trainer

    class MyTuner(trainers.Tuner):
        kind = Search

    found = Mine(run_config=config).fit(made)
    assert (found.metrics, found.folder) == ({"number": 1}, tmp_path / "here/run/1")
    trials = MyTuner(run_config=config).fit(made, clean_trials=True)
    assert [trial.folder.name for trial in trials] == ["1", "2"]
    assert config.storage_path == ""  # the user's own
    config.storage_path = str(tmp_path / "local")
    assert Mine(run_config=config).fit(None).folder == tmp_path / "local/run/1"


@pytest.mark.parametrize("name", [None, "", "../x", "a/b", ".."])
def test_a_run_without_a_name_that_is_a_folder_is_refused(made, name):
    with pytest.raises(ClientError, match="run_config: run name"):
        trainers.TorchTrainer(lambda: None, run_config=Config(name)).fit(made, clean_trials=True)


def test_a_box_that_is_busy_is_asked_again(monkeypatch):
    # What Ray 2.60's client raises: the traceback of the server, as text.
    failed = ConnectionAbortedError(
        "Initialization failure from server:\nTraceback (most recent call last):\n"
        "RuntimeError: Starting Ray client server failed. See ray_client_server_23001.err"
    )
    answers: list[Exception | None] = [failed, None]

    def init(*_: Any, **__: Any) -> None:
        if (error := answers.pop(0)) is not None:
            raise error

    monkeypatch.setattr(ray, "init", init)
    syncer._take_client("ray://box", {})
    assert not answers
    answers += [failed] * syncer.START_TRIES
    with pytest.raises(ConnectionAbortedError, match="Starting Ray client server failed"):
        syncer._take_client("ray://box", {})
    answers[:] = [ConnectionAbortedError("another version"), None]
    with pytest.raises(ConnectionAbortedError, match="another version"):
        syncer._take_client("ray://box", {})
