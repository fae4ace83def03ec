"""The pulumi CLI and the engine read the settings that the other one wrote."""

import json

import pytest

from engine import cli, config
from tests import quick

pytestmark = [pytest.mark.integration, pytest.mark.pulumi, pytest.mark.timeout(120)]

# YAML takes most of them for something else, unless they are quoted correctly.
TEXTS = [
    *("true", "True", "yes", "null", "~", "", "007", "1e3", "1.5", "0x1f", "0o17", "1_000", "+1"),
    *(".inf", ".nan", "2026-01-01", "12:30:45", str(config.LARGEST), "9" * 25, "=", "<<"),
    *("@home", ": x", "a: b", "a #b", "# c", "- x", "-", "?", "|", ">", "%x", "!t", "&a", "*b"),
    *("'quoted'", '"quoted"', '{"a": 1}', "[1, 2]", "\\n", " before", "after ", "\ttab", "x" * 300),
    *("two\nlines", "two\n\n  lines\n", "\a", "\x85", "\u2028", "ü→\U0001f600"),
]
# Parts of a setting become numbers and booleans where they can.
PARTS = {"true": True, "0": 0, "-0": 0, "-1": -1, "+1": 1, "1": 1, "01": "01", "1.0": "1.0"}
PARTS |= {str(number): number for number in (config.LARGEST - 1, -config.LARGEST)}
SECRET = "canary\nof two lines"


@pytest.fixture
def config_of(engine, pulumi, monkeypatch, capsys):
    """Runs the engine's command, in this process: a hundred others would take a while."""
    for name in ("PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE"):
        monkeypatch.setenv(name, engine.environment[name])

    def run(action, *arguments):
        code = cli.main(["-C", str(engine.project), "config", action, *arguments])
        said = capsys.readouterr()
        assert code == 0, said.err
        return said.out

    engine.declare()
    pulumi("stack init")
    with quick.counting(engine.environment):
        yield run


def test_the_cli_reads_what_the_engine_wrote(pulumi, config_of):
    for number, text in enumerate(TEXTS):
        config_of("set", f"text{number}", "--", text)
    for number, text in enumerate(PARTS):
        config_of("set", "--path", f"shape.parts[{number}]", "--", text)
    config_of("set", "--secret", "secret", SECRET)
    config_of("set", "--secret", "--path", "shape.secret", SECRET)
    config_of("rm", "folder")

    read = json.loads(pulumi("config", "--json"))
    assert [read[f"files:text{number}"]["value"] for number in range(len(TEXTS))] == TEXTS
    assert "files:folder" not in read
    assert read["files:secret"] == {"secret": True}
    assert SECRET not in str(read)
    shape = json.loads(pulumi("config get", "shape"))
    assert shape == {"parts": [*PARTS.values()], "secret": SECRET}
    assert pulumi("config get", "secret") == f"{SECRET}\n"


def test_the_engine_reads_what_the_cli_wrote(pulumi, config_of):
    texts = [f"text{number}={text}" for number, text in enumerate(TEXTS)]
    parts = [f"shape.parts[{number}]={text}" for number, text in enumerate(PARTS)]
    for options, entries in (([], texts), (["--path"], parts)):
        pulumi("config set-all", *options, *(f"--plaintext={entry}" for entry in entries))
    pulumi("config rm", "folder")
    for number, text in enumerate(TEXTS):
        assert config_of("get", f"text{number}") == f"{text}\n"
        config_of("rm", f"text{number}")  # and the rest of the file stays

    secrets = [f"--secret={key}={SECRET}" for key in ("secret", "shape.secret")]
    pulumi("config set-all", "--path", *secrets)
    listed = config_of("ls")
    assert SECRET not in listed
    assert f"{'secret':24} [secret]\n" in listed
    assert "folder" not in listed
    shape = {"parts": [*PARTS.values()], "secret": SECRET}
    assert json.loads(config_of("get", "shape")) == shape
    assert config_of("get", "secret") == f"{SECRET}\n"
    for key in ("secret", "shape"):
        config_of("rm", key)
    left = json.loads(pulumi("config", "--json"))
    assert {key: entry["value"] for key, entry in left.items()} == {"files:shape": "{}"}
