"""`secrets rotate`: state and settings open with the new passphrase only, also after a kill."""

import re
from unittest.mock import Mock

import pytest
import yaml

from engine import passphrase, rotate
from engine.crypto import Crypter
from tests.flocks import is_locked
from trainyard.access import users_file

NEW = "a new phrase"


@pytest.fixture
def secret(stack):
    """A stack with a secret in its state and one in its settings."""
    stack.up(a={"text": "1", "token": "canary-of-the-state"})
    crypter = Crypter.fresh(passphrase.passphrase())
    document = yaml.safe_load(stack.settings.read_text())
    document["config"]["files:password"] = {"secure": crypter.encrypt("canary-of-the-settings")}
    document = {"encryptionsalt": crypter.salt, **document}
    stack.settings.write_text("# ours\n" + yaml.safe_dump(document, sort_keys=False))
    stack.settings.chmod(0o644)
    stack.up()
    return stack


@pytest.fixture
def new_file(tmp_path):
    path = tmp_path / "new"
    path.write_text(f"{NEW}\n")
    path.chmod(0o600)
    return path


def test_state_and_settings_open_with_the_new_passphrase_only(secret, new_file, monkeypatch):
    before = secret.settings.read_text(), secret.state_file.read_text()
    done = secret.run("secrets", "rotate", "--new-passphrase-file", str(new_file))
    assert done.code == 0, done.err
    assert "1 settings are encrypted again" in done.out
    assert f"PULUMI_CONFIG_PASSPHRASE_FILE={new_file}" in done.out
    secret.fails("up")
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", NEW)
    secret.up("--expect-no-changes")
    text = secret.settings.read_text()
    assert text.startswith("# ours\n")
    assert secret.settings.stat().st_mode & 0o777 == 0o644
    after = text, secret.state_file.read_text()
    kept = {word for old in before for word in old.split() if word.strip('",').startswith("v1:")}
    assert kept
    assert not any(word in new for word in kept for new in after)


def test_no_other_command_writes_the_settings_meanwhile(secret, new_file, monkeypatch):  # F52
    held = []
    write = users_file.replace

    def noting(path, content):
        held.append(is_locked(path.parent))
        write(path, content)

    monkeypatch.setattr(users_file, "replace", noting)
    assert secret.run("secrets", "rotate", "--new-passphrase-file", str(new_file)).code == 0
    assert held == [True]


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        (r"secure: (v1:\S+)", r'secure: "\1"  # ours'),
        (r"\n +secure: (v1:\S+)", r" {secure: \1}"),
        (r"encryptionsalt: (\S+)", r"encryptionsalt: \1  # ours"),
        (r"encryptionsalt: (\S+)", r"encryptionsalt: '\1'"),
    ],
)
def test_a_secret_or_salt_is_replaced_however_it_is_written(
    secret, new_file, monkeypatch, written, instead
):
    text = re.sub(written, instead, secret.settings.read_text())
    assert text != secret.settings.read_text()
    secret.settings.write_text(text)
    secret.up("--expect-no-changes")
    done = secret.run("secrets", "rotate", "--new-passphrase-file", str(new_file))
    assert "1 settings are encrypted again" in done.out
    assert secret.settings.read_text().count("# ours") == text.count("# ours")
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", NEW)
    secret.up("--expect-no-changes")


def test_the_same_passphrase_gives_another_key(secret):
    before = secret.settings.read_text()
    assert secret.run("secrets", "rotate").code == 0
    assert secret.settings.read_text() != before
    secret.up("--expect-no-changes")


def test_a_kill_between_the_two_files_is_mended_by_the_same_command(secret, new_file, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(rotate.Backend, "save", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            secret.run("secrets", "rotate", "--new-passphrase-file", str(new_file))
    assert secret.run("up").code == 1  # the settings are new, the state is old
    assert secret.run("secrets", "rotate", "--new-passphrase-file", str(new_file)).code == 0
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", NEW)
    secret.up("--expect-no-changes")


def test_what_cannot_be_is_one_message_and_changes_nothing(secret, new_file, monkeypatch):
    before = secret.settings.read_text(), secret.state_file.read_text()
    new_file.chmod(0o644)
    assert (
        "others may read"
        in secret.run("secrets", "rotate", "--new-passphrase-file", str(new_file)).err
    )
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "wrong")
    assert "incorrect passphrase" in secret.run("secrets", "rotate").err
    secret.fails("secrets", "rotate", stack="none")
    assert (secret.settings.read_text(), secret.state_file.read_text()) == before
