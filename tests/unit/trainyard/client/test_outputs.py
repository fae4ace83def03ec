"""Reading a stack's outputs, and each way in which they can be wrong."""

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from unittest.mock import Mock

import pytest

from tests import ran as ran_by
from trainyard.access import outputs as names
from trainyard.access import repository, user
from trainyard.client import outputs
from trainyard.client.errors import ClientError


def test_reads_a_file(values, outputs_file, monkeypatch):
    monkeypatch.setenv("TRAINYARD_OUTPUTS", str(outputs_file(values)))
    assert outputs.read().stack == "dev"
    monkeypatch.delenv("TRAINYARD_OUTPUTS")
    found = outputs.read(file=outputs_file(values))
    assert found.dashboard_url == "http://127.0.0.1:1"
    assert (found.owner, found.user) == ("ada", user.name())  # whose the stack is, and who asks
    assert [node.name for node in found.nodes] == ["head", "worker-0", "worker-1"]
    assert found.nodes[2].resources == {"TPU": 4.0}


def test_secrets_stay_out_of_repr(stack):  # F35
    assert "canary" not in repr(stack)
    keys = {"canary-access-0123456789", "canary-secret-0123456789"}
    tokens = {"canary-token-0123456789", "canary-serve-token"}
    assert set(stack.secrets) == keys | tokens


def test_a_stack_without_outputs_is_down():
    with pytest.raises(ClientError, match=r"^stack 'dev' is down: run `make up`$"):
        outputs.parse("{}", "dev", "stack 'dev'")


@pytest.mark.parametrize("name", [*names.NOTHING])
@pytest.mark.parametrize("renamed", [True, False])
def test_each_output_that_is_missing_is_named_with_the_stack(  # F19
    name, renamed, values, outputs_file
):
    value = values.pop(name)
    if renamed:
        values[f"{name}Url"] = value
    with pytest.raises(ClientError) as caught:
        outputs.read("dev", outputs_file(values))
    assert f"lacks the outputs {name} of stack 'dev': " in str(caught.value)
    if name != names.STACK:
        with pytest.raises(ClientError, match=f"lacks the outputs {name} of stack 'dev'"):
            outputs.read(None, outputs_file(values))


@pytest.mark.parametrize("given", ["--stack", "environment"])
def test_outputs_of_another_stack_are_refused(given, values, outputs_file, monkeypatch):
    if given == "environment":
        monkeypatch.setenv("TRAINYARD_STACK", "lab")
    with pytest.raises(ClientError, match=r"of stack 'dev', not of 'lab'.*--stack dev"):
        outputs.read("lab" if given == "--stack" else None, outputs_file(values))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"text"'])
def test_what_is_no_json_object_is_refused(text, outputs_file):
    with pytest.raises(ClientError, match=r"not (a )?JSON.*train output --json --show-secrets"):
        outputs.read(file=outputs_file(text))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_file_that_others_may_read_is_refused(mode, values, outputs_file):  # F38
    path = outputs_file(values, mode)
    with pytest.raises(ClientError, match=rf"mode {mode:04o}, at most 0600\): chmod 600 {path}"):
        outputs.read(file=path)


ACCESS = {
    "host": "203.0.113.7",
    "port": 22,
    "user": "trainyard",
    "hostKey": "ssh-ed25519 AAAA",
    "keyFile": "",
    "privateKey": "canary-private-key\n",
}


def test_a_stack_elsewhere_says_how_it_is_reached(values, stack):
    assert (stack.ssh, stack.expires_at) == (None, None)  # this one is here
    text = json.dumps(values | {"ssh": ACCESS, "expiresAt": "2026-01-31T18:00:00Z"})
    found = outputs.parse(text, None, "test")
    assert found.ssh.name == "trainyard@203.0.113.7"
    assert found.expires_at == datetime(2026, 1, 31, 18, tzinfo=UTC)
    assert "canary" not in repr(found)  # F35
    assert "canary-private-key" in found.secrets
    other = outputs.parse(json.dumps(values | {"ssh": ACCESS | {"port": 2222}}), None, "test")
    assert other.ssh.name == "trainyard@203.0.113.7:2222"


NO_HOST_KEY = {k: v for k, v in ACCESS.items() if k != "hostKey"}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"rayToken": "[secret]"}, "was written without its secrets"),
        ({"bucket": None, "rayVersion": 2.6}, "the outputs bucket, rayVersion are not text"),
        *(
            ({"nodes": nodes}, "output 'nodes' is malformed")
            for nodes in (None, [{}], [{"name": "a", "cpus": "many"}], "nodes")
        ),
        *(
            ({"ssh": ssh}, "output 'ssh' is malformed")
            for ssh in (NO_HOST_KEY, ACCESS | {"port": "many"}, "text")
        ),
        ({"kubernetes": {"context": "lab"}}, "output 'kubernetes' is malformed"),
        ({"expiresAt": "tomorrow"}, "output 'expiresAt' is malformed"),
        ({"expiresAt": "2026-01-31T18:00:00"}, "output 'expiresAt' is malformed"),
    ],
)
def test_a_wrong_output_is_named_without_secrets(wrong, said, values):
    with pytest.raises(ClientError, match=f"^test:? {re.escape(said)}") as caught:
        outputs.parse(json.dumps(values | wrong), None, "test")
    assert "canary" not in str(caught.value)


@pytest.fixture
def program(tmp_path, values, monkeypatch):
    """A project whose state has the stack `engine-only`, with a pulumi that knows `cli`."""
    cli = f"""#!/bin/sh
[ "$1 $2" = "-C {tmp_path}" ] || exit 9
shift 2
[ "$1 $2 $3 $4 $5" = "stack output --json --show-secrets -s" ] || exit 9
if [ "$6" = cli ]; then cat {tmp_path}/cli.json; exit; fi
echo "error: no stack named '$6' found" >&2
exit 255
"""
    (tmp_path / "Pulumi.yaml").write_text("name: trainyard\nruntime: python\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "pulumi").write_text(cli)
    (tmp_path / "bin" / "pulumi").chmod(0o755)
    own = {"type": "pulumi:pulumi:Stack", "outputs": values | {"stack": "engine-only"}}
    own["urn"] = "urn:pulumi:engine-only::trainyard::pulumi:pulumi:Stack::trainyard-engine-only"
    state = tmp_path / ".pulumi/stacks/trainyard/engine-only.json"
    state.parent.mkdir(parents=True)
    checkpoint = {"stack": "organization/trainyard/engine-only", "latest": {"resources": [own]}}
    state.write_text(json.dumps({"version": 3, "checkpoint": checkpoint}))
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}")
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "x")
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    return tmp_path


def test_asks_the_cli_where_it_knows_the_stack(program, values, monkeypatch):
    monkeypatch.setenv("PATH", f"{program / 'bin'}:/usr/bin:/bin")
    (program / "cli.json").write_text(json.dumps(values | {"stack": "cli"}))
    assert outputs.read("cli").stack == "cli"


@pytest.mark.parametrize("path", ["bin", "nothing"])
def test_reads_a_state_in_this_process(path, program, monkeypatch):  # P18
    monkeypatch.setenv("PATH", f"{program / path}:/usr/bin:/bin")
    monkeypatch.setattr(outputs.subprocess, "run", Mock(side_effect=AssertionError))
    assert outputs.read("engine-only").stack == "engine-only"


def test_a_stack_that_neither_knows_is_one_message(program, monkeypatch):
    monkeypatch.setenv("PATH", f"{program / 'bin'}:/usr/bin:/bin")
    with pytest.raises(ClientError) as caught:
        outputs.read("nope")
    message = r"stack 'nope' is down, or never was up \(no stack named 'nope'.*\): run `make up`"
    assert re.fullmatch(message, str(caught.value))


def test_a_busy_machine_is_told_and_no_up_is_advised(program, monkeypatch):  # F81
    monkeypatch.setenv("PATH", f"{program / 'bin'}:/usr/bin:/bin")
    late = Mock(side_effect=subprocess.TimeoutExpired("pulumi", 120))
    monkeypatch.setattr(outputs.subprocess, "run", late)
    with pytest.raises(ClientError, match=r"waited 120 s .* The machine is busy, .* run the") as no:
        outputs.read("lab")
    assert "make up" not in str(no.value)
    late.assert_called_once()


def test_a_wrong_passphrase_is_one_message(program, monkeypatch):
    (program / "bin" / "pulumi").write_text(
        "#!/bin/sh\necho 'error: incorrect passphrase' >&2\nexit 1\n"
    )
    monkeypatch.setattr(outputs.repository, "is_checkout", lambda: False)
    monkeypatch.setenv("PATH", f"{program / 'bin'}:/usr/bin:/bin")
    with pytest.raises(ClientError) as caught:
        outputs.read("lab")
    assert str(caught.value) == "cannot read the secrets of stack 'lab': incorrect passphrase"


def test_the_checkout_beside_the_package_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "house").mkdir()
    (tmp_path / "house" / "Pulumi.yaml").touch()
    monkeypatch.setattr(repository, "ROOT", tmp_path / "house")
    assert outputs.checkout() == tmp_path / "house"
    (tmp_path / "house" / "Pulumi.yaml").unlink()
    with pytest.raises(ClientError, match=r"no Pulumi.yaml in .* or above.*--outputs"):
        outputs.checkout()


CANARY = "from pathlib import Path; Path({path!r}).touch()"


@pytest.mark.parametrize("path", [None, "", ".", f":{os.devnull}:engine/.."])
def test_nothing_of_a_foreign_folder_is_run(path, tmp_path, monkeypatch):
    folder = tmp_path / "foreign"
    ran = tmp_path / "ran"
    ran.mkdir()
    names = ("engine", "trainyard", "pulumi", "infra", "yaml", "sitecustomize", "usercustomize")
    for name in names:
        (folder / name).mkdir(parents=True)
        for file in ("__init__.py", "__main__.py", "cli.py"):
            (folder / name / file).write_text(CANARY.format(path=str(ran / name)))
    (folder / "infra" / "__main__.py").write_text(CANARY.format(path=str(ran / "program")))
    (folder / "Pulumi.yaml").write_text("name: trainyard\nmain: infra/\nruntime: python\n")
    (folder / "Pulumi.dev.yaml").write_text("config: {}\n")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}")
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    if path is None:
        monkeypatch.delenv("PYTHONPATH", raising=False)
    else:
        monkeypatch.setenv("PYTHONPATH", path)
    engine = [sys.executable, "-m", "engine", "-C", str(folder), "output"]
    done = outputs.run_in_checkout(engine, 60)
    assert "no stack named 'dev' in" in done.stderr
    # In the client's own process, whose path has a folder with an engine of its own.
    monkeypatch.setenv("PYTHONPATH", str(folder / "lib"))
    (folder / "lib").mkdir()
    (folder / "engine").rename(folder / "lib" / "engine")
    code = "from trainyard.client import outputs; outputs.read('dev')"
    for module in ("trainyard.client.cli", "sys"):  # the client's own process, and a user's
        told = ran_by.run([sys.executable, "-P", "-c", f"import {module}; {code}"], cwd=folder)
        assert "stack 'dev' is down, or never was up" in told.stderr
    assert list(ran.iterdir()) == []


@pytest.mark.usefixtures("program")
def test_a_module_engine_of_a_user_stays_theirs(monkeypatch, tmp_path):
    """Hydra reads the outputs in the process of a user's script."""
    (tmp_path / "engine.py").write_text("power = 400\n")
    code = (
        "import engine, sys; from trainyard.client import outputs; "
        "print(outputs.read('engine-only').stack, engine.power, sys.path[0])"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{repository.ROOT}")
    done = ran_by.run([sys.executable, "-P", "-c", code])
    assert done.stdout.split() == ["engine-only", "400", str(tmp_path)], done.stderr
