"""Outputs and secrets: shown only when asked for, encrypted in every file."""

import json
import subprocess
import sys

CANARY = "canary-made-secret"
TOKEN = "canary-token-in"


def test_outputs(stack):
    stack.up(a={"text": "one"})
    masked = json.loads(stack.run("output", "--json").out)
    assert masked == {"aPath": f"{stack.folder}/a.0.json", "aMade": "[secret]"}
    shown = json.loads(stack.run("output", "--json", "--show-secrets").out)
    assert shown["aMade"] == CANARY
    assert stack.run("output", "aPath").out.strip() == f"{stack.folder}/a.0.json"


def test_an_output_that_does_not_exist_names_those_that_do(stack):  # F19
    stack.up(a={})
    assert "no output 'bPath'; it has: aMade, aPath" in stack.fails("output", "bPath").err


def test_no_secret_is_written_or_shown_in_the_clear(stack):  # F35
    stack.declare(a={"token": TOKEN}, g={"group": True, "token": TOKEN})
    printed = [stack.run("up", "--diff", "--debug")]
    stack.declare(a={"token": TOKEN + "-2"}, g={"group": True, "token": TOKEN})
    printed += [stack.run("preview", "--diff"), stack.run("up", "--diff"), stack.run("output")]
    (stack.folder / "a.0.json").write_text(json.dumps({"text": "", "token": TOKEN, "kind": ""}))
    printed += [stack.run("refresh", "--diff")]
    for result in printed:
        assert result.code == 0
        for canary in (CANARY, TOKEN):
            assert canary not in result.out + result.err
    written = [path for path in (stack.root / "backend").rglob("*") if path.is_file()]
    assert len(written) >= 4  # the state, its .bak, backups, meta.yaml
    for path in written:
        for canary in (CANARY, TOKEN):
            assert canary not in path.read_text(), path


def test_a_message_of_the_program_cannot_carry_a_known_secret(stack):  # F35
    stack.up(a={"token": TOKEN})
    with (stack.project / "__main__.py").open("a") as program:
        program.write(f"pulumi.log.info('look: {TOKEN}')\n")
    result = stack.up()
    assert "look: [secret]" in result.out


def test_reading_a_state_loads_neither_protobuf_nor_psutil():  # P5: each `train` command does so
    check = (
        "import sys, engine.cli; sys.exit(bool({'google.protobuf', 'psutil'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
