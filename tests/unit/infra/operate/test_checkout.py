"""The salt that the pulumi CLI writes into a stack's settings is nothing that git sees."""

import functools
from pathlib import Path

import pytest

from engine.crypto import Crypter
from engine.project import Project, read_settings
from infra.operate import checkout
from tests import ran

ATTRIBUTES = (Path(__file__).parents[4] / ".gitattributes").read_text()
MAKEFILE = (Path(__file__).parents[4] / "Makefile").read_text()
PHRASE = "x"
SETTINGS = "config:\n  trainyard:objectStore: auto\n"
SALT = "encryptionsalt: v1:abc:v1:def:ghi\n"


@pytest.fixture
def git(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "none"))
    root = tmp_path / "checkout"
    root.mkdir()

    def run(*arguments):
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        return ran.output(["git", *identity, *arguments], cwd=root)

    run("init", "-q")
    checkout.configure(root)
    (root / ".gitattributes").write_text(ATTRIBUTES)
    (root / "Pulumi.dev.yaml").write_text(SETTINGS)
    (root / "Pulumi.course.yaml").write_text(SETTINGS)
    run("add", "-A")
    run("commit", "-qm", "settings")
    run.root = root
    return run


@pytest.mark.parametrize("stack", ["dev", "course"])
@pytest.mark.parametrize("settings", [SETTINGS + SALT, SALT + SETTINGS])
def test_a_salt_leaves_the_checkout_clean(git, stack, settings):
    path = git.root / f"Pulumi.{stack}.yaml"
    path.write_text(settings)
    checkout.forget_salt(stack, git.root)
    assert git("status", "--porcelain") == ""
    assert path.read_text() == settings


def test_make_setup_configures_the_filter():
    assert "$(BIN)/python -m infra.operate.checkout\n" in MAKEFILE


def test_what_the_user_edits_stays_his_to_add(git):
    (git.root / "Pulumi.dev.yaml").write_text(SETTINGS + "  trainyard:workers: 1\n" + SALT)
    checkout.forget_salt("dev", git.root)
    assert git("status", "--porcelain") == " M Pulumi.dev.yaml\n"
    assert "encryptionsalt" not in git("diff")


def test_outside_a_checkout_nothing_happens(tmp_path, capfd):
    (tmp_path / "Pulumi.dev.yaml").write_text(SETTINGS + SALT)
    checkout.forget_salt("dev", tmp_path)
    checkout.forget_salt("missing", tmp_path)
    assert (tmp_path / "Pulumi.dev.yaml").read_text() == SETTINGS + SALT
    checkout.configure(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["Pulumi.dev.yaml"]
    assert capfd.readouterr() == ("", "")


@functools.cache
def _crypter():
    return Crypter.fresh(PHRASE)  # making a key takes a moment


def _secret(git):
    """Settings with a secret, as `pulumi config set --secret` leaves them."""
    crypter = _crypter()
    secret = f"  trainyard:owner:\n    secure: {crypter.encrypt('canary')}\n"
    text = f"{SETTINGS}{secret}encryptionsalt: {crypter.salt}\n"
    (git.root / "Pulumi.dev.yaml").write_text(text)
    return text


def _revealed(git, monkeypatch):
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", PHRASE)
    project = Project(root=git.root, name="trainyard", main=git.root)
    return read_settings(project, "dev").config["trainyard:owner"]


@pytest.mark.parametrize("meanwhile", ["nothing", "another salt", "a commit"])
def test_a_secret_survives_a_stash(git, monkeypatch, meanwhile):
    settings = git.root / "Pulumi.dev.yaml"
    text = _secret(git)
    checkout.forget_salt("dev", git.root)
    assert git("status", "--porcelain") == " M Pulumi.dev.yaml\n"  # it is never staged
    git("stash")
    assert settings.read_text() == SETTINGS
    if meanwhile == "another salt":  # an `up` of the CLI, which finds none
        settings.write_text(SETTINGS + SALT)
        checkout.forget_salt("dev", git.root)
    elif meanwhile == "a commit":
        (git.root / "Pulumi.course.yaml").write_text(f"# mine\n{SETTINGS}")
        git("commit", "-qam", "course")
    git("stash", "pop")
    assert settings.read_text() == text
    assert _revealed(git, monkeypatch) == "canary"


def test_a_secret_survives_a_commit_and_a_clone_of_it(git, monkeypatch):
    text = _secret(git)
    git("commit", "-qam", "secret")
    git("checkout", "-q", "HEAD~1")
    git("checkout", "-q", "-")
    assert (git.root / "Pulumi.dev.yaml").read_text() == text
    checkout.forget_salt("dev", git.root)
    assert git("status", "--porcelain") == ""
    assert _revealed(git, monkeypatch) == "canary"


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("    secure: v1:a:b", True),
        ('    "secure": "v1:a:b"', True),
        ("  trainyard:owner: {secure: v1:a:b}", True),
        ("  trainyard:owner: insecure: v1:a:b", False),
        ("  # nothing secure: yet", False),
    ],
)
def test_the_salt_stays_only_with_what_needs_it(git, line, kept):
    (git.root / "Pulumi.dev.yaml").write_text(f"{SETTINGS}{line}\n{SALT}")
    git("add", "-A")
    assert (SALT in git("show", ":Pulumi.dev.yaml")) == kept
    assert line in git("show", ":Pulumi.dev.yaml")
