"""Attaching a Ray that no stack started: what is refused before it is asked, and its file."""

import errno
import json
import math
import os
import re
import shlex
import time
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner

from tests import ui_stack
from trainyard.client import connection, jobs, outputs, store, submission
from trainyard.client.cli import app
from trainyard.client.commands import attach
from trainyard.client.dashboard import Dashboard, RefusedError, UnreachableError
from trainyard.client.errors import ClientError

GROUP = {"resources": {"CPU": 8, "TPU": 4}, "max_workers": 2}
ALIVE = {
    "node_id": "n1",
    "node_ip": "10.0.0.2",
    "is_head_node": False,
    "state": "ALIVE",
    "resources_total": {"CPU": 8.0, "TPU": 4.0, "memory": 2.0**30, "node:10.0.0.2": 1.0},
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """No stack is here, and no cluster is attached."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(outputs, "of_state", Mock(side_effect=ClientError("no stack")))
    monkeypatch.setattr(outputs.repository, "ROOT", tmp_path)


@pytest.fixture
def attached(values):
    """Attach a cluster of two possible TPU nodes, without a token."""
    outputs.attached_file("practical").parent.mkdir(parents=True)
    nodes = attach._on_demand({"tpu": GROUP}, 4)
    mine = {"project": "", "stack": "practical", "rayToken": "", "nodes": nodes}
    attach._write(outputs.attached_file("practical"), json.dumps(values | mine))
    return outputs.attached_file("practical")


def run(*arguments):
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, str(result.exception or result.output)


def test_one_variable_chooses_the_cluster(attached, values, monkeypatch):  # B5
    monkeypatch.setenv("TRAINYARD_STACK", "practical")
    found = outputs.read()
    assert (found.stack, found.attached, found.bearer) == ("practical", True, {})
    monkeypatch.setenv("TRAINYARD_STACK", "lab")
    with pytest.raises(ClientError, match="no stack"):
        outputs.read()
    assert outputs.read("practical").attached


def test_a_name_of_a_stack_is_refused(attached, tmp_path, monkeypatch):
    (tmp_path / "Pulumi.yaml").touch()
    (tmp_path / "Pulumi.practical.yaml").touch()
    for use in (lambda: outputs.read("practical"), lambda: attach._check_free("practical")):
        with pytest.raises(
            ClientError, match=r"'practical' is a stack.* another name with -s NAME"
        ):
            use()
    monkeypatch.setattr(outputs, "of_state", Mock())
    with pytest.raises(ClientError, match="'prod' is a stack: attach the cluster by another name"):
        attach._check_free("prod")
    with pytest.raises(ClientError, match=r"'\.\./x' is not 1 to 100 letters"):
        attach._check_free("../x")


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("localhost", "http://localhost:8265"),
        ("192.0.2.7:80", "http://192.0.2.7:80"),
        ("https://ray.example.org/", "https://ray.example.org:443"),
        ("http://[::1]:8265", "http://[::1]:8265"),
    ],
)
def test_an_address_is_that_of_a_dashboard(text, url):
    assert attach._address(text) == url


def test_the_environment_names_a_ray(monkeypatch):  # B5 B16
    for address, ip, url in (
        ("", "", ""),
        ("", "192.0.2.7", "http://192.0.2.7:8265"),
        ("https://ray.example.org", "192.0.2.7", "https://ray.example.org:443"),
        ("ray://a:10001", "a", "http://a:8265"),
        ("10.0.0.2:6379", "", ""),  # as in each job
    ):
        monkeypatch.setenv("RAY_ADDRESS", address)
        monkeypatch.setenv("RAY_IP", ip)
        assert attach.of_environment() == url


@pytest.mark.parametrize(
    "text",
    [
        *("", "ray://a:10001", "http://a:8265/x", "http://u:p@a"),
        *("http://a:x", "http://a?b", "http://["),
    ],
)
def test_what_is_not_an_address_is_refused(text):
    code, said = run("attach", text)
    assert code
    assert "is not the address of a dashboard: give one such as http://192.0.2.7:8265" in said


def test_a_token_is_taken_from_a_private_file_only(tmp_path):
    file = tmp_path / "token"
    for content, mode, said in (
        ("secret", 0o644, f"mode 0644, at most 0600\\): chmod 600 {file}"),
        ("two words", 0o600, "does not have one word of ASCII: name the file"),
        ("", 0o600, "does not have one word of ASCII: name the file"),
    ):
        file.write_text(content)
        file.chmod(mode)
        with pytest.raises(ClientError, match=said):
            attach._token(file)
    file.write_text("canary\n")
    assert attach._token(file) == ("", "canary")
    with pytest.raises(ClientError, match=r"cannot read token file .*nothing \(No such file"):
        attach._token(tmp_path / "nothing")


def test_a_cluster_that_does_not_answer_is_one_message_and_leaves_no_file():
    code, said = run("attach", "http://127.0.0.1:1", "-s", "practical")
    assert code
    assert "no job server answers at http://127.0.0.1:1 (stack 'practical')" in said
    assert "start that Ray, or change its address with `train attach -s practical`" in said
    assert not outputs.is_attached("practical")


@pytest.mark.parametrize(("token", "said"), [("", "asks for a"), ("wrong", "refuses the")])
def test_a_token_that_is_missing_or_wrong_is_said(token, said, attached, monkeypatch):
    attached.write_text(json.dumps(json.loads(attached.read_text()) | {"rayToken": token}))
    monkeypatch.setattr(Dashboard, "get", Mock(side_effect=RefusedError(401, "")))
    found = outputs.read("practical")
    with pytest.raises(
        ClientError, match=rf"{said} token \(401\): .* --token-file FILE -s practical"
    ):
        jobs.connect(found)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "[" * 100_000, '{"a": 1' + "0" * 5000 + "}", " " * (outputs.MOST_BYTES + 1)],
)
def test_a_damaged_file_is_one_message_with_the_way_out(text, attached):
    attached.write_text(text)
    with pytest.raises(ClientError, match="run `train attach ADDRESS -s practical` again"):
        outputs.read("practical")


def test_a_file_that_others_may_read_is_refused(attached):
    assert attached.stat().st_mode & 0o777 == 0o600
    attached.chmod(0o644)
    with pytest.raises(ClientError, match=r"mode 0644, at most 0600\): chmod 600"):
        outputs.read("practical")


def test_detach_forgets_a_cluster(attached):
    code, said = run("detach", "-s", "other")
    assert code
    assert said == "no cluster is attached as 'other': attached are practical"
    assert run("detach", "-s", "practical") == (
        0,
        "detached 'practical'; the cluster keeps running\n",
    )
    assert not attached.exists()


def test_nodes_are_those_alive_and_those_that_the_autoscaler_may_start(attached, monkeypatch):
    found = outputs.read("practical")
    head = ALIVE | {"node_ip": "10.0.0.9", "is_head_node": True, "resources_total": {"CPU": 1.0}}
    reply = {"data": {"result": {"result": [ALIVE, ALIVE | {"state": "DEAD"}, head]}}}
    monkeypatch.setattr(Dashboard, "get", lambda *_, **__: reply)
    nodes = connection.to(found).__enter__().outputs.nodes
    assert [(node.name, node.resources, node.on_demand) for node in nodes] == [
        ("10.0.0.9", {}, False),
        ("10.0.0.2", {"TPU": 4.0}, False),
        ("tpu", {"TPU": 4.0}, True),
    ]
    assert nodes[1].memory_mib == 1024
    odd = {"data": {"result": {"result": [ALIVE | {"resources_total": {"CPU": 1e999}}]}}}
    for answer in (Mock(side_effect=UnreachableError("away")), lambda *_, **__: odd):
        monkeypatch.setattr(Dashboard, "get", answer)
        assert connection.to(found).__enter__().outputs.nodes == found.nodes


def test_groups_of_the_autoscaler_are_checked_and_bounded():
    assert len(attach._on_demand({"a": {"resources": None, "max_workers": None}}, 3)) == 3
    many = {str(i): {"resources": {}, "max_workers": 10**9} for i in range(5000)}  # F70
    assert len(attach._on_demand(dict([*many.items()][:1000]), 0)) == 10_000
    infinite = {"a": GROUP | {"resources": {"CPU": float("inf")}}}
    long = [{"a": GROUP | {"resources": {"x" * 300: 1}}}, {"x" * 300: GROUP}]
    odd = [many, infinite, *long, *({"a": GROUP | {"max_workers": x}} for x in ("many", 1e999, -1))]
    for groups in (3, {"a": 3}, {"a": {}}, *odd):
        with pytest.raises(ClientError, match="the file of Ray's launcher on the head is not one"):
            attach._on_demand(groups, 1)


class Head(ui_stack.Head):
    """A Ray of others, whose job gives the answers that a test chooses."""

    def __init__(self, **answers):
        super().__init__([])
        self.alive = ALIVE
        self.status, self.printed, self.blocks = "SUCCEEDED", None, False
        self.found = {"python": "3.11", "groups": {"tpu": GROUP}, "most": 4, "folder": True}
        self.found |= answers

    def answer(self, path):
        if path == "/api/jobs/" and self.sent:
            return {"submission_id": "probe"}
        if path == "/api/jobs/probe":
            return ui_stack.job(1, self.status, submission_id="probe")
        if path == "/api/v0/nodes":
            time.sleep(2 if self.blocks else 0)
            return {"data": {"result": {"result": [self.alive]}}}
        return super().answer(path) or {}

    def log_pieces(self):
        mark = shlex.split(json.loads(self.sent[0])["entrypoint"])[3]
        said = json.dumps(self.found) if self.printed is None else self.printed
        yield f"a line of Ray\n{mark}{said}\n".encode()


def attach_to(head, tmp_path):
    """Attach a head with a token; returns the exit code and what was said."""
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text(ui_stack.TOKEN)
    with ui_stack.serving(head) as address:
        return run("attach", address, "--token-file", str(token), "-s", "practical")


def left_behind():
    return [path.name for path in outputs.attached_file("x").parent.glob("*")]


def test_a_cluster_is_attached(tmp_path):
    code, said = attach_to(Head(), tmp_path)
    assert (code, said.splitlines()[-2].partition("nodes: ")[2]) == (0, "1, and up to 2 on demand")
    assert left_behind() == ["practical.json"]
    assert outputs.read("practical").ray_token == ui_stack.TOKEN


def long_names():
    group = {"resources": {f"{i:0200}": 1 for i in range(32)}, "max_workers": 150}
    return {"groups": {str(i): group for i in range(20)}}


def long_node():
    return ALIVE | {"resources_total": {f"{i:0200}": 1 for i in range(85_000)}}


HOSTILE = {
    "a never-ending job": ({}, {"status": "RUNNING"}, "probe was told to describe the cluster"),
    "a lot of log": ({}, {"printed": "x" * 5 * 2**20}, "has more than 4 MiB"),
    "no answer": ({}, {"printed": ""}, r"\(it printed no answer\)"),
    "a list": ({}, {"printed": "[]"}, r"\(it printed no answer\)"),
    "half an answer": ({}, {"printed": "{"}, r"\(it printed no answer\)"),
    "levels": ({}, {"printed": "[" * 100_000}, r"\(it printed no answer\)"),
    "a version of numbers": ({"python": 3.11}, {}, r"\(it printed no answer\)"),
    "5,000 groups": ({"groups": dict.fromkeys(map(str, range(5000)), GROUP)}, {}, "5000 groups"),
    "infinite numbers": ({"groups": {"a": GROUP | {"max_workers": math.inf}}}, {}, "is inf, not 0"),
    "16 MiB of names": (long_names(), {}, "bytes of nodes, at most 16777216 are kept"),
    "a node of 17 MiB": ({}, {"alive": long_node()}, "nodes in 1.* bytes, at most 16777216"),
    "no end of an answer": ({}, {"blocks": True}, "no answer within 0.8 s"),
    "no Ray": ({}, {"replies": {"/api/version": []}}, "does not tell its version of Ray"),
}


@pytest.mark.parametrize(("answers", "changes", "said"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_dashboard_is_one_message_and_leaves_no_token(  # F70
    answers, changes, said, tmp_path, monkeypatch
):
    if "status" in changes:
        monkeypatch.setattr(attach, "ANSWER_S", 0.3)
    if "blocks" in changes:
        monkeypatch.setattr(attach, "ASK_S", 0.8)
    head = Head(**answers)
    vars(head).update(changes)
    code, found = attach_to(head, tmp_path)
    assert code
    assert re.search(said, found), found[-500:]
    assert "Traceback" not in found
    assert left_behind() == []
    if head.status == "RUNNING":
        assert ("POST", "/api/jobs/probe/stop") in head.asked


def test_a_token_is_not_sent_in_the_clear_without_a_yes(tmp_path, monkeypatch):  # F70
    (tmp_path / "token").touch(mode=0o600)
    (tmp_path / "token").write_text("canary")
    asked = Mock(side_effect=ClientError("asked"))
    monkeypatch.setattr(attach, "_ask", asked)
    command = ["attach", "http://192.0.2.7:8265", "-s", "practical"]
    with_token = [*command, "--token-file", str(tmp_path / "token")]
    for answer in ("", "n\n"):
        result = CliRunner().invoke(app, with_token, input=answer)
        assert "was not sent to http://192.0.2.7:8265: --yes sends it" in str(result.exception)
    assert not asked.called
    assert str(CliRunner().invoke(app, with_token, input="y\n").exception) == "asked"
    assert run(*with_token, "--yes") == (1, "asked")
    assert run(*command) == (1, "asked")


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_no_token(step, attached, monkeypatch):  # F70
    before = attached.read_text()
    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr(os if step == "fsync" else attach.Path, step, full)
    with pytest.raises(ClientError, match=r"cannot write .*\(No space left on device\): make room"):
        attach._write(attached, "a new token")
    assert left_behind() == ["practical.json"]
    assert attached.read_text() == before


def test_jobs_of_an_attached_cluster_get_its_store(attached):
    found = outputs.read("practical")
    sent = submission._stored({"env_vars": {"A": "1"}}, found)
    assert sent == {"env_vars": {"A": "1", "TRAINYARD_STORAGE_URL": found.storage_url}}
    without = json.loads(attached.read_text()) | {"storageUrl": ""}
    attached.write_text(json.dumps(without))
    with pytest.raises(ClientError, match=r"has no store.*`train attach .* --storage URI`"):
        store.open_store(outputs.read("practical"))
    assert submission._stored({}, outputs.read("practical")) == {}


def test_a_store_is_a_folder_or_a_bucket(tmp_path):
    assert attach._storage("") == ""
    assert attach._storage("results") == (tmp_path / "results").as_uri()
    assert attach._storage("file:///a%20b") == "file:///a%20b"
    assert attach._storage("s3://bucket/prefix") == "s3://bucket/prefix"
    for text in ("s3://", "gs://bucket", "file://host/a"):
        with pytest.raises(ClientError, match="is not a store: give a folder, or s3://"):
            attach._storage(text)
