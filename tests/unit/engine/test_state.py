"""The state file: damage, locks, passphrases."""

import json
import os
import random
import re
import shutil
import socket
from pathlib import Path

import pytest

from engine.errors import EngineError
from engine.state import BACKUPS_KEPT, Backend, copying, temporary

SHARED_SALT = "v1:3/77fFO6W/8=:v1:grbGViW6bVIMqDp+:Z7Fen2VyWAIOtqQiUiyadzlD/l938w=="


COMMANDS = [("up",), ("up", "--refresh"), ("refresh",), ("destroy",), ("preview",)]
TOKEN = "canary-token-of-the-state"


@pytest.fixture
def made(stack):
    """A stack with a secret, to be changed."""
    stack.up(a={"text": "one", "token": TOKEN})
    stack.declare(a={"text": "two", "token": TOKEN}, b={})
    return stack


def _nothing_happened(stack, command, message):
    result = stack.refuses(*command)
    assert message in result.err
    assert result.out == ""
    assert TOKEN not in result.err


@pytest.mark.parametrize("phrase", ["wrong", "", "correct horse "])
def test_a_wrong_passphrase_changes_nothing(made, monkeypatch, phrase):  # F18
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", phrase)
    for command in (*COMMANDS, ("output", "--show-secrets")):
        _nothing_happened(made, command, "incorrect passphrase")


def test_a_missing_passphrase_changes_nothing(made, monkeypatch, tmp_path):  # F18
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE_FILE", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    for command in COMMANDS:
        _nothing_happened(made, command, "set PULUMI_CONFIG_PASSPHRASE or ")
    assert not (tmp_path / "none").exists()


def test_a_passphrase_that_is_not_the_settings_files_changes_nothing(stack):  # F18
    with stack.settings.open("a") as settings:
        settings.write(f"encryptionsalt: {SHARED_SALT}\n")  # made with another passphrase
    result = stack.fails("up")
    assert "incorrect passphrase" in result.err
    assert result.out == ""
    assert not stack.state_file.exists()


@pytest.mark.parametrize(
    ("providers", "message"),
    [
        ({"type": "cloud", "state": {"url": "awskms://x"}}, "secrets provider 'cloud'"),
        ({"type": "service"}, "secrets provider 'service'"),
        ({"type": "passphrase"}, "holds secrets, and no salt to read them"),
        (None, "holds secrets, and no salt to read them"),
        ({"type": "passphrase", "state": {"salt": "v1:abc"}}, "the encryption salt 'v1:abc'"),
    ],
)
def test_another_secrets_provider_changes_nothing(made, providers, message):  # F18
    with made.edited() as latest:
        latest["secrets_providers"] = providers
    for command in COMMANDS:
        _nothing_happened(made, command, message)


def test_a_secret_that_was_changed_changes_nothing(made):  # F15 F18
    inputs = made.resource("a")["inputs"]
    version, nonce, sealed = inputs["token"]["ciphertext"].split(":")
    inputs["token"]["ciphertext"] = f"{version}:{nonce}:{'A' * 8}{sealed[8:]}"
    made.change_entry("a", inputs=inputs)
    for command in COMMANDS:
        _nothing_happened(made, command, "cannot be decrypted")


def test_what_only_the_cli_knows_in_a_state_is_refused(stack):
    stack.up(a={})
    document = json.loads(stack.state_file.read_text())
    del document["sha256"], document["seal"]  # as after `pulumi state taint`
    stack.state_file.write_text(json.dumps(document | {"version": 4, "features": ["taint"]}))
    result = stack.fails("up")
    assert "features ['taint'] of the state: run it with the pulumi CLI" in result.err
    assert "restore" not in result.err


def _damages(content):
    yield b""
    yield b"{}"
    yield b"null"
    yield b"[]"
    yield b'{"version": 5, "checkpoint": {"latest": {}}}'
    choice = random.Random(15)
    for _ in range(20):
        yield content[: choice.randrange(1, len(content) - 1)]
    for _ in range(25):
        position = choice.randrange(len(content))
        flipped = content[position] ^ (1 << choice.randrange(8))
        yield content[:position] + bytes([flipped]) + content[position + 1 :]


def test_a_damaged_state_is_noticed_and_the_backup_restores_it(stack):  # F15
    stack.up(a={"text": "one", "token": "some-secret"}, b={"text_of": "a"})
    good = stack.state_file.read_bytes()
    made = stack.journal()
    noticed = 0
    for damaged in _damages(good):
        stack.state_file.write_bytes(damaged)
        result = stack.run("up")
        if result.code == 0:
            # Only a flip in white space is harmless.
            assert json.loads(damaged) == json.loads(good)
            continue
        noticed += 1
        assert "nothing was changed; restore it: cp " in result.err
        assert stack.state_file.read_bytes() == damaged
    assert noticed >= 45
    command = result.err if result.code else ""
    stack.state_file.unlink()
    result = stack.run("up")
    assert "is missing" in result.err
    command = result.err.split("restore it: cp ")[1].split()
    shutil.copy(*command)
    assert stack.summary("preview", "--expect-no-changes") == {}
    assert stack.journal() == made


def test_a_foreign_resource_in_the_state_is_noticed(stack):  # F15
    stack.up(a={})
    with stack.edited() as latest:
        first = latest["resources"][0]
        first["urn"] = first["urn"].replace("urn:pulumi:dev::", "urn:pulumi:prod::")
    assert "is not of this stack" in stack.fails("destroy").err
    assert stack.files() == {"a.0.json": ""}


@pytest.mark.parametrize("field", ["provider", "parent", "dependencies", "propertyDependencies"])
def test_a_reference_that_leads_nowhere_is_noticed(stack, field):  # F15
    stack.up(a={}, b={"text_of": "a"})
    entry = stack.resource("b")
    assert field in entry
    nowhere = entry["urn"] + "-not"
    kept = {"provider": f"{nowhere}::id", "parent": nowhere, "dependencies": [nowhere]}
    stack.change_entry("b", **{field: kept.get(field, {"text": [nowhere]})})
    assert f"refers to {nowhere}, which does not come before it" in stack.fails("destroy").err
    assert len(stack.files()) == 2


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_a_compressed_state_is_refused(stack, suffix):
    stack.up(a={})
    stack.state_file.rename(stack.state_file.with_suffix(f".json.{suffix}"))
    assert "compressed states" in stack.fails("up").err


def test_an_interrupted_create_is_kept_until_it_is_settled(stack):  # F12
    stack.up(a={"text": "one"}, b={"text": "one"})
    made = {name: stack.resource(name) for name in ("a", "b")}
    with stack.edited() as latest:
        latest["resources"] = [e for e in latest["resources"] if e not in made.values()]
        begun = [{k: e[k] for k in e.keys() - {"id", "outputs"}} for e in made.values()]
        latest["pending_operations"] = [{"resource": e, "type": "creating"} for e in begun]
    (stack.folder / "b.0.json").write_text("not JSON: find fails on it")
    stack.fails("up")
    pending = stack.latest()["pending_operations"]
    assert [operation["resource"]["urn"] for operation in pending] == [made["b"]["urn"]]
    (stack.folder / "b.0.json").write_text('{"text": "one", "token": null, "kind": "plain"}')
    assert stack.summary("up") == {}
    assert "pending_operations" not in stack.latest()
    # Nothing is made twice; either of the two may come first.
    assert sorted(stack.journal()) == ["create a.0.json", "create b.0.json"]


def _lock(stack, **fields):
    folder = stack.root / "backend/.pulumi/locks/organization/files/dev"
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "pid": os.getpid(),
        "username": "ada",
        "hostname": socket.gethostname(),
        "timestamp": "2999-01-01T00:00:00Z",
    }
    (folder / "other.json").write_text(json.dumps(content | fields))


def test_a_foreign_lock_is_respected_named_and_can_be_cancelled(stack):  # F13 F14
    stack.declare(a={})
    _lock(stack, hostname="elsewhere", pid=7)
    assert "locked by ada@elsewhere (pid 7) since 2999" in stack.fails("up").err
    assert stack.files() == {}
    assert stack.run("preview").code == 0  # takes no lock
    assert stack.run("cancel").code == 0
    assert stack.run("up").code == 0


BEFORE = {"a": {"text": "1"}, "c": {"kind": "plain"}, "d": {}}
AFTER = {"a": {"text": "2"}, "b": {"text": "2"}, "c": {"kind": "other"}}
MADE = {"a.0.json": "2", "b.0.json": "2", "c.1.json": ""}


def test_a_write_that_fails_loses_nothing_wherever_it_is(stack, monkeypatch):  # F16
    """Each write of an operation fails once, in turn; the next operation finishes the work."""
    real = os.fsync
    writes = 0
    failing = 0

    def fsync(descriptor):
        nonlocal writes
        if Path(f"/proc/self/fd/{descriptor}").resolve().is_relative_to(stack.root / "backend"):
            writes += 1
            if writes == failing:
                raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr("os.fsync", fsync)
    stack.up(**BEFORE)
    creates = len(stack.journal())
    kept = stack.root / "kept"
    for name in ("made", "backend"):
        shutil.copytree(stack.root / name, kept / name)
    stack.declare(**AFTER)
    failures = 0
    while True:
        failing, writes = failures + 1, 0
        result = stack.run("up")
        if result.code == 0:
            break
        failures += 1
        assert "No space left on device" in result.out + result.err
        assert not list((stack.root / "backend/.pulumi").glob(".tmp-*"))
        assert not list((stack.root / "backend/.pulumi/locks").rglob("*.json"))
        failing = 0
        stack.up()
        assert stack.files() == MADE
        # Nothing is made twice: b and the other half of c.
        made = [line for line in stack.journal() if line.startswith("create")]
        assert len(made) == creates + 2, made
        assert stack.summary("preview", "--refresh", "--expect-no-changes") == {}
        for name in ("made", "backend"):
            shutil.rmtree(stack.root / name)
            shutil.copytree(kept / name, stack.root / name)
    assert failures >= 20  # files and folders: the lock, .bak, before and after each step, backup


def test_what_is_written_is_durable_before_anything_else_happens(stack, monkeypatch):
    """A rename survives a power cut only once its folder is synced; a new folder, its parent."""
    events = []
    fsync, replace, mkdir = os.fsync, Path.replace, Path.mkdir

    def named(kind, path):
        if not Path(path).is_relative_to(stack.folder):
            events.append((kind, Path(path)))

    def note_fsync(descriptor):
        named("sync", Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    def note_replace(path, target):
        named("from", path)
        named("to", target)
        return replace(path, target)

    def note_mkdir(path, *arguments, **options):
        named("make", path)
        mkdir(path, *arguments, **options)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "replace", note_replace)
    monkeypatch.setattr(Path, "mkdir", note_mkdir)
    stack.up(a={})
    kinds = [kind for kind, _ in events]
    assert kinds.count("to") >= 6  # meta.yaml, the lock, state before and after, backup
    made = {path for kind, path in events if kind == "make"}
    assert stack.state_file.parent in made
    for number, (kind, path) in enumerate(events):
        if kind == "from":
            assert events[number - 1] == ("sync", path)  # the content, before it has its name
        elif kind in ("to", "make"):
            synced = next(name for what, name in events[number:] if what == "sync")
            assert synced == path.parent


@pytest.mark.usefixtures("open_umask")
def test_all_that_is_written_is_for_this_user_only(stack):  # F35
    stack.up(a={"token": "canary"})
    stack.up()
    found = [path for path in (stack.root / "backend").rglob("*") if path.is_file()]
    assert {path.name.partition(".")[2][:4] for path in found} >= {"json", "yaml"}
    assert {path.stat().st_mode & 0o777 for path in found} == {0o600}


def test_two_stacks_never_share_a_temporary_file(tmp_path):
    backend = Backend(f"file://{tmp_path}", Path())
    names = [("a", "b-c"), ("a-b", "c"), ("a", "b.c"), ("a.b", "c")]
    found = {temporary(backend.folder, *name, use) for name in names for use in ("state", "lock")}
    assert len(found) == 2 * len(names)


def _archive(backend, count):
    path = backend.stack_file("p", "dev")
    path.parent.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        path.write_text(f"{number}")
        backend.archive("p", "dev")


def test_backups_are_pruned(tmp_path):
    backend = Backend(f"file://{tmp_path}", Path())
    folder = backend.folder / "backups" / "p" / "dev"
    _archive(backend, 3)
    (folder / "dev.2.json").write_text("the CLI's, and the oldest")
    (folder / "dev.2.json.attrs").write_text("the CLI's too")
    (folder / "notes.json").write_text("the user's")
    assert len(backend.backups("p", "dev")) == 4
    _archive(backend, BACKUPS_KEPT - 1)
    kept = [path.read_text() for path in backend.backups("p", "dev")]
    assert kept == [str(n) for n in reversed(range(BACKUPS_KEPT - 1))] + ["2"]
    assert {path.name for path in folder.iterdir() if "." not in path.stem} == {"notes.json"}
    assert not (folder / "dev.2.json").exists()


def test_an_operation_without_a_change_makes_no_backup(tmp_path):
    backend = Backend(f"file://{tmp_path}", Path())
    backend.archive("p", "dev")  # nothing is there
    assert backend.backups("p", "dev") == []
    _archive(backend, 1)
    _archive(backend, 1)
    assert len(backend.backups("p", "dev")) == 1


def test_a_copy_of_before_an_operation_is_the_newest_while_it_is_under_way(tmp_path):
    backend = Backend(f"file://{tmp_path}", Path())
    _archive(backend, 1)
    beside = backend.stack_file("p", "dev").with_suffix(".json.bak")
    (archived,) = backend.backups("p", "dev")
    beside.write_text("before the next one")
    assert backend.backups("p", "dev") == [beside, archived]
    os.utime(beside, ns=(1, 1))
    assert backend.backups("p", "dev") == [archived, beside]


def test_a_copy_in_a_bucket_is_restored_by_a_command_that_there_is():
    url = "s3://states/team?endpoint=127.0.0.1:9000&disableSSL=true"
    folder = Backend(url, Path()).folder
    command = f"aws s3 cp {folder}/a {folder}/b --endpoint-url http://127.0.0.1:9000"
    assert copying(folder / "a", folder / "b") == command
    assert copying(Path("a"), Path("b")) == "cp a b"


def test_a_stack_that_the_cli_removed_can_be_made_anew(stack):
    stack.up(a={})
    stack.run("destroy")
    stack.state_file.unlink()  # the CLI keeps the copies
    stack.up(a={})


def test_a_removed_stack_leaves_nothing(stack):
    stack.up(a={})
    stack.run("destroy")
    # The CLI's leftovers next to its own files.
    history = stack.root / "backend" / ".pulumi" / "history"
    (noted,) = [path for path in history.rglob("*.history.json") if "update" in path.read_text()]
    noted.with_name(noted.name.replace(".history.", ".checkpoint.")).write_text("{}")
    stack.state_file.with_suffix(".pulumi-tags").write_text("{}")
    assert stack.run("stack", "rm", "--yes").code == 0
    left = [path for path in (stack.root / "backend").rglob("*") if path.is_file()]
    assert [path.name for path in left] == ["meta.yaml"]
    stack.up()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://api.example", "does not know the state backend 'https://api.example'"),
        ("gs://states", "does not know the state backend"),
        ("s3://", "names no bucket: write s3://BUCKET"),
        ("s3://states?end=x", "unknown parameters end; known are endpoint, region"),
    ],
)
def test_other_backends_are_refused(url, said):
    with pytest.raises(EngineError, match=re.escape(said)):
        Backend(url, Path())


def test_what_the_state_was_before_an_operation_lies_beside_it(stack):  # F15
    stack.up(a={"text": "one"})
    before = stack.state_file.read_bytes()
    stack.up(a={"text": "two"})
    assert stack.state_file.with_suffix(".json.bak").read_bytes() == before
    assert stack.state_file.read_bytes() != before


def test_a_project_names_its_backend_unless_the_environment_does(stack, monkeypatch, tmp_path):
    project = stack.project / "Pulumi.yaml"
    project.write_text(f"{project.read_text()}\nbackend: {{url: 'file://{tmp_path}/own'}}\n")
    stack.up(a={})
    assert not (tmp_path / "own").exists()
    monkeypatch.delenv("PULUMI_BACKEND_URL")
    assert stack.summary("preview") == {"create": 2}
    stack.up()
    assert (tmp_path / "own/.pulumi/stacks/files/dev.json").exists()


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"inputs": ["x"]}, "latest.resources.inputs is ['x']"),
        ({"dependencies": [7]}, "latest.resources.dependencies is 7"),
        ({"propertyDependencies": {"text": "u"}}, "propertyDependencies.text is 'u'"),
        ({"urn": "\ud800"}, "latest.resources.urn is"),
        ({"type": None}, "latest.resources lacks type"),
        ({"provider": None}, "has no provider"),
        ({"outputs": {"a": json.loads("[" * 70 + "]" * 70)}}, "more than 64 values deep"),
    ],
)
def test_a_state_of_an_odd_shape_is_one_message(stack, fields, told):  # F80
    stack.up(a={"text": "one"})
    stack.up(a={"text": "two"})
    stack.change_entry("a", **fields)
    for command in COMMANDS:
        said = stack.fails(*command).err
        assert said.count("\n") == 1
        assert told in said
        assert "nothing was changed; restore it: cp " in said
