"""What is written for supervisord, and what its programs inherit."""

import os
import subprocess
import urllib.request
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from node import supervisor
from node.folders import FolderMark
from node.life import ServiceError
from node.supervisor import Definition, Supervisor

MARK = FolderMark(id="0123abcd", project="p", stack="s", by="ada@here")
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)


def _definition(**changes: object) -> Definition:
    values: dict[str, object] = {
        "name": "echo",
        "command": ["true"],
        "environment": {},
        "files": {},
        "folders": [],
        "stop_seconds": 1,
    }
    return Definition(**(values | changes))  # type: ignore[arg-type]


@given(arguments=st.lists(TEXT, max_size=4), value=TEXT)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_argument_and_variable_reaches_the_program(tmp_path, arguments, value):  # F39
    command = ["sh", "-c", 'printf "%s\\0" "$V" "$@"', "sh"]
    definition = _definition(command=[*command, *arguments], environment={"V": value})
    files = supervisor._files(tmp_path, definition)
    script = files[tmp_path / "echo" / "run"]
    done = subprocess.run(["sh", "-c", script], capture_output=True, check=True)
    assert done.stdout.decode().split("\0") == [value, *arguments, ""]


def test_programs_do_not_inherit_the_secrets_of_the_user(monkeypatch):
    for name in ("PULUMI_CONFIG_PASSPHRASE", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "PULUMI_CONFIG"):
        monkeypatch.setenv(name, "canary")  # F35
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    inherited = supervisor.inherited_environment()
    assert "canary" not in inherited.values()
    assert inherited["https_proxy"] == "http://proxy:3128"
    assert (Path(inherited["PATH"].split(os.pathsep)[0]) / "python").exists()


@pytest.mark.parametrize("before", ["", "intranet"])
def test_programs_reach_this_machine_without_a_proxy(before, monkeypatch):  # F58
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", before)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setattr(os, "environ", supervisor.inherited_environment())
    assert urllib.request.proxy_bypass_environment("127.0.0.1:7070")
    assert bool(urllib.request.proxy_bypass_environment("intranet")) == bool(before)
    assert not urllib.request.proxy_bypass_environment("elsewhere")


def test_the_last_lines_of_a_log(tmp_path):
    log = tmp_path / "log"
    assert supervisor.tail(log) == []
    log.write_bytes(b"".join(b"line %d\n" % number for number in range(100)) + b"\xff\n")
    assert supervisor.tail(log, 3) == ["line 98", "line 99", "\ufffd"]


def test_a_supervisor_that_is_gone_runs_nothing(tmp_path):
    gone = Supervisor(folder=tmp_path / "gone", mark=MARK)
    assert not gone.alive()
    assert not gone.running("echo")
    gone.remove("echo")
    assert gone.stop() == ""
    with pytest.raises(ServiceError, match="`up` again"):
        gone.add(_definition())
