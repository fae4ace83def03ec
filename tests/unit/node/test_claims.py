"""Two stacks on one machine never get the same port, even if both start at once."""

import json
import os
import socket
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from infra.machines.process import DaemonProvider
from node import claims, folders
from node.folders import FolderMark
from node.life import ServiceError
from node.programs import Data
from trainyard.access import docker_client

LAB, DEV = (FolderMark(id=f"id-{each}", project="p", stack=each, by="ada@gpu1") for each in "ld")
PORTS = {"objectStoreConsolePort": [10001], "agentPort": [27365, 27366]}
SAME = {"rayClientPort": [10001]}  # 9001 and an offset of 1000 are that, too


def _refused(mark: FolderMark = DEV, **place: Any) -> str:
    with pytest.raises(ServiceError) as raised:
        claims.take(mark, SAME, **place)
    return str(raised.value)


def _orphaned(folder: Path) -> Path:
    """The one claim, as if its maker had been killed and another process had its id now."""
    (path,) = folder.iterdir()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"maker": [os.getpid(), 1.5]}))
    return path


@pytest.mark.parametrize("in_turn", [True, False])
def test_of_two_at_the_same_moment_one_at_most_wins(in_turn, claimed, monkeypatch):  # F64
    if not in_turn:  # somebody keeps the name for ever
        monkeypatch.setattr(claims, "TURN_SECONDS", 0)
    both = Barrier(2)

    def take(mark: FolderMark) -> bool:
        both.wait()
        try:
            claims.take(mark, SAME)
        except ServiceError:
            return False
        return True

    with socket.socket(socket.AF_UNIX) as kept, ThreadPoolExecutor(2) as pool:
        if not in_turn:
            kept.bind(claims.TURN)
        for _ in range(20):
            won = [*pool.map(take, (LAB, DEV))]
            assert sum(won) == 1 if in_turn else sum(won) <= 1
            assert len([*claimed.iterdir()]) == sum(won)
            claims.release(LAB.id)
            claims.release(DEV.id)


def test_others_wait_for_their_turn(claimed):  # F64
    with socket.socket(socket.AF_UNIX) as turn, ThreadPoolExecutor(1) as pool:
        turn.bind(claims.TURN)
        waiting = pool.submit(claims.take, LAB, SAME)
        with pytest.raises(TimeoutError):
            waiting.result(0.2)
        assert not [*claimed.iterdir()]
        turn.close()
        waiting.result(20)
    assert claims.has(LAB.id)


def test_an_overlap_is_refused_with_the_other_stacks_name(claimed):  # F64
    claims.take(LAB, PORTS)
    (path,) = claimed.iterdir()
    assert path.stat().st_mode & 0o7777 == 0o1644  # others may read it, cleaners leave it
    line, advice, way_out = _refused().splitlines()
    assert line == (
        "port 10001 (rayClientPort) is claimed by stack l of project p, made by ada@gpu1 "
        "(objectStoreConsolePort)"
    )
    assert advice.startswith("Run `train up --find-ports`")
    assert way_out == f"If stack l of project p, made by ada@gpu1 is gone for good: rm {path}"
    assert [*claimed.iterdir()] == [path]
    claims.take(LAB, SAME)  # its own are free to it
    claims.take(DEV, {"agentPort": [27365]})  # and what it has given up to others
    claims.release(LAB.id)
    claims.take(DEV, SAME)


@pytest.mark.parametrize("gone", [True, False])
def test_a_claim_lasts_for_as_long_as_its_stack(gone, claimed, tmp_path):  # F64
    data = tmp_path / "data"
    folders.take(data, LAB, "dataDir")
    claims.take(LAB, PORTS, folder=str(data))
    path = _orphaned(claimed)
    if gone:  # or killed before it made anything
        folders.remove(data, LAB)
        claims.take(DEV, SAME)
        assert not path.exists()
    else:
        assert "stack l of project p" in _refused()


@pytest.mark.parametrize(
    ("networks", "host", "counts"),
    [(["lab"], "", True), ([], "", False), ([], "unix:///other", True), (None, "", True)],
)
def test_a_stack_of_containers_is_there_while_its_network_is(  # F64
    networks, host, counts, claimed, monkeypatch
):
    claims.take(LAB, PORTS, network="lab")
    _orphaned(claimed)
    monkeypatch.setenv(docker_client.HOST, host)
    engine = SimpleNamespace(networks=SimpleNamespace(list=lambda names: networks))
    ends = docker_client.EngineUnavailableError("no answer") if networks is None else None
    monkeypatch.setattr(docker_client, "connect", Mock(return_value=engine, side_effect=ends))
    assert bool(claims.conflicts(DEV.id, SAME)) == counts


def test_another_users_claim_counts_and_the_way_out_is_told(claimed, monkeypatch):  # F64
    claims.take(replace(LAB, by="x" * 1000), PORTS, folder="/nowhere")
    path, owner = _orphaned(claimed), os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert (said := _refused()).endswith(f"is gone for good: rm {path} (user {owner}, or root)")
    assert max(map(len, said.splitlines())) < 500
    claims.release(LAB.id)
    assert path.exists()  # not even where the folder would let it
    assert not claims.has(LAB.id)


def test_what_others_put_there_is_not_followed_and_blocks_nothing(claimed, tmp_path):  # F64
    claims.take(LAB, PORTS)
    (path,) = claimed.iterdir()
    path.rename(elsewhere := tmp_path / "claim")
    whole = json.loads(elsewhere.read_text())
    texts = ["", "[", "null", "[]", "{}", "[" * 60_000, "9" * 5000, " " * 70_000 + "{}"]
    odd = [{"maker": 1}, {"ports": {"a": 1}}, {"ports": {"a": [1e999]}}, {"mark": 1}]
    for number, text in enumerate([*texts, *(json.dumps(whole | each) for each in odd)]):
        (claimed / f"{claims.PREFIX}{number}").write_text(text)
    (claimed / f"{claims.PREFIX}link").symlink_to(elsewhere)
    (claimed / f"{claims.PREFIX}folder").mkdir()
    os.mkfifo(claimed / f"{claims.PREFIX}pipe")
    assert claims.every() == []
    claims.take(DEV, SAME)
    assert elsewhere.exists()


@pytest.mark.parametrize("what", ["mkstemp", "fchmod"])
def test_without_room_for_it_nothing_is_claimed(what, claimed, monkeypatch, full):  # F64
    monkeypatch.setattr(tempfile if what == "mkstemp" else os, what, full)
    assert _refused() == (
        f"no claim of ports can be written to {claimed} (No space left on device): make room"
    )
    assert not [*claimed.iterdir()]


def test_data_comes_and_goes_with_its_claim_and_a_preview_only_looks(claimed, tmp_path):  # F64
    mark = {"id": "id-l", "project": "p", "stack": "l", "by": "ada@gpu1"}
    folder = str(tmp_path / "data")
    data = {"folder": folder, "keep": False, "mark": mark, "ports": PORTS}
    Data().create(data)
    other = data | {"folder": str(tmp_path / "other"), "mark": mark | {"id": "id-d", "stack": "d"}}
    before = [*claimed.iterdir()]
    wanted = other | {"identifier": "d", "ports": SAME}
    (fault,) = DaemonProvider().check({}, wanted).failures
    assert fault.reason.startswith("port 10001 (rayClientPort) is claimed by stack l of project p,")
    with pytest.raises(ServiceError):
        Data().create(other)
    assert ([*claimed.iterdir()], (tmp_path / "other").exists()) == (before, False)
    assert Data().read(folder, data) == data
    before[0].unlink()
    assert Data().read(folder, data) == data | {"ports": {}}  # the next up claims them
    Data().update(data | {"ports": {}}, data)
    assert claims.has("id-l")
    Data().delete(folder, data)
    assert not [*claimed.iterdir()]
