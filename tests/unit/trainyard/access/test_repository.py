"""git works on the folder that it is given."""

import os
import subprocess
import sys
from pathlib import Path

from engine import history, plan
from infra.operate import checkout
from tests import ran
from trainyard.access import repository
from trainyard.client import submission


def _repository(folder):
    folder.mkdir()
    one = ["-c", "user.name=A user", "-c", "user.email=user@example.org", "commit", "--allow-empty"]
    for command in (["init", "-q"], [*one, "-qm", folder.name]):
        subprocess.run(["git", "-C", folder, *command], check=True, env=repository.environment())
    head = ["git", "-C", folder, "rev-parse", "HEAD"]
    return subprocess.run(head, capture_output=True, text=True, check=True).stdout.strip()


def test_the_repository_of_a_hook_is_not_taken_for_the_folders(tmp_path, monkeypatch):  # F58
    commits = {name: _repository(tmp_path / name) for name in ("mine", "hooks")}
    mine, hooks = tmp_path / "mine", tmp_path / "hooks"
    monkeypatch.setenv("GIT_DIR", str(hooks / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(hooks / ".git" / "index"))
    assert submission.commit(mine) == commits["mine"]
    assert history._git(mine, "rev-parse", "HEAD") == commits["mine"]
    assert plan._sources(mine)["commit"] == commits["mine"]
    checkout.configure(mine)
    assert checkout.FILTER in (mine / ".git" / "config").read_text()
    assert checkout.FILTER not in (hooks / ".git" / "config").read_text()


def test_what_git_calls_local_is_left_out():  # F58
    names = subprocess.run(
        ["git", "rev-parse", "--local-env-vars"], capture_output=True, text=True, check=True
    )
    assert set(names.stdout.split()) <= repository.LOCAL


def _checkout(folder):
    for name in repository.PROGRAM:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def test_the_code_of_another_checkout_is_told_apart(tmp_path):  # F57
    mine, copy = _checkout(tmp_path / "mine"), _checkout(tmp_path / "copy")
    (tmp_path / "link").symlink_to(mine)
    assert repository.another(copy / "docs", mine) == copy
    for here in (mine, mine / "docs", tmp_path / "link", tmp_path):
        assert repository.another(here, mine) is None
    assert repository.another(copy, tmp_path / "site-packages") is None


def test_a_folder_that_is_gone_or_closed_is_of_no_checkout(tmp_path, monkeypatch):  # F58
    mine, gone = _checkout(tmp_path / "mine"), tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert repository.another(root=mine) is None

    def refused(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", refused)
    assert repository.another(tmp_path, mine) is None


def test_train_of_one_checkout_is_refused_in_another(tmp_path):  # F57
    copy = _checkout(tmp_path / "copy")
    done = ran.run(
        [Path(sys.executable).with_name("train"), "list"],
        cwd=copy,
        env={**os.environ, "COLUMNS": "1000"},
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: this `train` is of {repository.ROOT}, ")
    assert done.stderr.endswith(f"run `make setup` there, then use {copy}/.venv/bin/train\n")
