"""What is done on the machine itself; the rest needs a real supervisord."""

import io
import json
import os
import subprocess
import sys

import pytest

from infra.runtimes import agent, programs
from infra.runtimes.programs import KINDS, Data, Files


@pytest.fixture
def open_umask():
    """Of a user who lets everybody read everything."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_files_are_private_and_no_other_is_there(tmp_path):  # F35 F38
    props = {"folder": str(tmp_path), "name": "ray-node", "secrets": {"token": "a", "keys": "b"}}
    id_, made = Files().create(props)
    folder = tmp_path / "ray-node" / "files"
    assert (id_, made) == (str(folder), props)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.read_text() for path in folder.iterdir()} == props["secrets"]
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    news = props | {"secrets": {"token": "c"}}
    assert Files().update(props, news) == news
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"token": "c"}


def test_files_that_were_changed_are_not_there(tmp_path):
    props = {"folder": str(tmp_path), "name": "ray-node", "secrets": {"token": "a"}}
    id_, _ = Files().create(props)
    assert Files().read(id_, props) == props
    assert Files().read(id_, props | {"secrets": {"token": "b"}}) is None
    (tmp_path / "ray-node" / "files" / "token").unlink()
    assert Files().read(id_, props) is None
    assert Files().find(props) is None


def test_what_works_in_the_folder_of_files_ends_with_them(tmp_path):
    props = {"folder": str(tmp_path), "name": "ray-node", "secrets": {}}
    id_, _ = Files().create(props)
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    with (
        subprocess.Popen([*sleep, f"--temp-dir={tmp_path}/ray-node/ray"]) as ours,
        subprocess.Popen([*sleep, f"--temp-dir={tmp_path}/ray-node-2/ray"]) as other,
    ):
        try:
            Files().delete(id_, props)
            assert ours.wait(10) != 0
            assert other.poll() is None
        finally:
            ours.kill()
            other.kill()
    assert not (tmp_path / "ray-node").exists()
    Files().delete(id_, props)


def test_data_that_is_kept_is_told(tmp_path):
    folder = tmp_path / "data"
    props = {"folder": str(folder), "keep": True}
    Data().create(props)
    assert folder.stat().st_mode & 0o777 == 0o700
    (folder / "result").write_text("x")
    assert Data().delete(str(folder), props).startswith(f"kept: {folder} ")
    assert Data().read(str(folder), props) == props
    assert Data().delete(str(folder), props | {"keep": False}) == ""
    assert Data().read(str(folder), props) is None


@pytest.fixture
def ask(monkeypatch, capsys):
    """Ask the agent; its answer."""

    def asked(**request):
        monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(request)))
        assert agent.main() == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    return asked


def test_the_agent_answers_what_the_kind_does(ask, tmp_path):
    props = {"folder": str(tmp_path / "data"), "keep": False}
    create = {"kind": "data", "method": "create", "arguments": [props]}
    assert ask(**create) == {"result": [props["folder"], props]}
    read = {"kind": "data", "method": "read", "arguments": [props["folder"], props]}
    assert ask(**read) == {"result": props}


def test_whatever_goes_wrong_there_is_an_answer(ask, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    props = {"folder": str(tmp_path / "file" / "data"), "keep": False}
    answer = ask(kind="data", method="create", arguments=[props])
    assert "Not a directory" in answer["error"]

    class Kind:
        def create(self, _props):
            raise RuntimeError

    monkeypatch.setitem(programs.KINDS, "data", Kind())
    assert ask(kind="data", method="create", arguments=[props]) == {"error": "RuntimeError()"}


def test_every_kind_has_the_methods_of_a_provider():
    for kind in KINDS.values():
        for method in ("create", "read", "update", "delete", "find"):
            assert callable(getattr(kind, method))


def test_another_store_does_not_take_the_place_of_one_that_runs(tmp_path):
    olds = {"folder": str(tmp_path), "keep": True, "store": "minio"}
    news = olds | {"store": "versitygw"}
    with pytest.raises(programs.ProgramError) as raised:
        Data().update(olds, news)
    message = str(raised.value)
    assert "objectStore is now versitygw, and this stack runs minio" in message
    assert f"{tmp_path}/minio" in message
    assert "Nothing was changed. Set objectStore to minio" in message
    # A folder of this machine stays readable, and one of nothing has nothing to lose.
    for before, after in (("", "minio"), ("minio", ""), ("minio", "minio")):
        Data().update(olds | {"store": before}, olds | {"store": after})
