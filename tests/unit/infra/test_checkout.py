"""The salt that the pulumi CLI writes into a stack's settings is nothing that git sees."""

import subprocess
from pathlib import Path

import pytest

from infra import checkout

ATTRIBUTES = (Path(__file__).parents[3] / ".gitattributes").read_text()
MAKEFILE = (Path(__file__).parents[3] / "Makefile").read_text()
SETTINGS = "config:\n  trainyard:objectStore: auto\n"
SALT = "encryptionsalt: v1:abc:v1:def:ghi\n"


@pytest.fixture
def git(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "none"))
    root = tmp_path / "checkout"
    root.mkdir()

    def run(*arguments):
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        done = subprocess.run(
            ["git", *identity, *arguments], cwd=root, capture_output=True, text=True, check=True
        )
        return done.stdout

    run("init", "-q")
    # As `make setup` has it.
    (command,) = [
        line.split("local-salt.clean ")[1].split('"')[1]
        for line in MAKEFILE.splitlines()
        if "local-salt.clean" in line
    ]
    run("config", "filter.local-salt.clean", command)
    (root / ".gitattributes").write_text(ATTRIBUTES)
    (root / "Pulumi.dev.yaml").write_text(SETTINGS)
    run("add", "-A")
    run("commit", "-qm", "settings")
    run.root = root
    return run


def test_a_salt_leaves_the_checkout_clean(git):
    (git.root / "Pulumi.dev.yaml").write_text(SETTINGS + SALT)
    checkout.forget_salt("dev", git.root)
    assert git("status", "--porcelain") == ""
    assert SALT in (git.root / "Pulumi.dev.yaml").read_text()


def test_what_the_user_edits_stays_his_to_add(git):
    (git.root / "Pulumi.dev.yaml").write_text(SETTINGS + "  trainyard:workers: 1\n" + SALT)
    checkout.forget_salt("dev", git.root)
    assert git("status", "--porcelain") == " M Pulumi.dev.yaml\n"
    assert "encryptionsalt" not in git("diff")


def test_outside_a_checkout_nothing_happens(tmp_path):
    (tmp_path / "Pulumi.dev.yaml").write_text(SETTINGS + SALT)
    checkout.forget_salt("dev", tmp_path)
    checkout.forget_salt("missing", tmp_path)
    assert (tmp_path / "Pulumi.dev.yaml").read_text() == SETTINGS + SALT
