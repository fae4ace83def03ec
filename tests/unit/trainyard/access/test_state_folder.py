"""Finding states, and noticing damaged ones."""

import json
from pathlib import Path

import pytest

from trainyard.access import state_folder
from trainyard.access.state_folder import DamagedStateError, LoginError


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        ("file://states", "/project/states/.pulumi"),
        ("file:///states", "/states/.pulumi"),
        ("file://~", "/home-of-ada/.pulumi"),
        ("gs://states", None),
        ("https://api.example.com", None),
    ],
)
def test_a_backend_is_a_folder_or_none(monkeypatch, url, folder):
    monkeypatch.setenv("HOME", "/home-of-ada")
    assert state_folder.find(url, Path("/project")) == (folder and Path(folder))


def test_the_login_of_the_pulumi_cli_is_followed(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "pulumi"))
    assert state_folder.logged_in() == f"file://{tmp_path}"
    login = tmp_path / "pulumi" / "credentials.json"
    login.parent.mkdir()
    for content in ("", '{"current": ""}'):
        login.write_text(content)
        assert state_folder.logged_in() == f"file://{tmp_path}"
    login.write_text('{"current": "s3://states"}')
    assert state_folder.logged_in() == "s3://states"
    for content in ("[", "an envelope"):
        login.write_text(content)
        with pytest.raises(LoginError, match="cannot be read: it is damaged, or encrypted"):
            state_folder.logged_in()
    monkeypatch.setenv("PULUMI_CREDENTIALS_PATH", str(tmp_path))
    (tmp_path / "credentials.json").write_text('{"current": "s3://others"}')
    assert state_folder.logged_in() == "s3://others"


def test_copies_are_the_newest_first_and_of_one_stack(tmp_path):
    folder = tmp_path / "backups" / "project" / "dev"
    folder.mkdir(parents=True)
    for name in ("dev.9.json", "dev.10.json", "dev.x.json", "development.11.json", "dev.json.bak"):
        (folder / name).touch()
    found = state_folder.archived(tmp_path, "project", "dev")
    assert [path.name for path in found] == ["dev.10.json", "dev.9.json"]


def test_a_state_that_was_changed_is_damaged(tmp_path):  # F15
    path = state_folder.stack_file(tmp_path, "project", "dev")
    path.parent.mkdir(parents=True)
    latest = {"resources": [{"urn": "u", "type": "t", "id": "i-1"}]}
    checkpoint = {"stack": "organization/project/dev", "latest": latest}
    document = {"version": 3, "checkpoint": checkpoint}
    for sealed in (document, document | {"sha256": state_folder.digest(checkpoint), "seal": ""}):
        path.write_text(json.dumps(sealed))
        assert state_folder.read(path).deployment == latest
    path.write_text(path.read_text().replace("i-1", "i-3"))
    with pytest.raises(DamagedStateError, match="its checksum differs"):
        state_folder.read(path)
    path.write_text(json.dumps(document | {"sha256": state_folder.digest(checkpoint)}))
    with pytest.raises(DamagedStateError, match="lost its checksum or its seal"):  # F48
        state_folder.read(path)
    nested, listed = "[" * 10**5, '{"version": 3, "checkpoint": {"latest": ["x"]}}'
    for content in ("", "[]", "{}", '{"checkpoint": {}}', '{"checkpoint": 1}', nested, listed):
        path.write_text(content)
        with pytest.raises(DamagedStateError):
            state_folder.read(path)
