"""The free disk of nodes: in `train info`, and before an upload."""

from unittest.mock import Mock

import pytest

from trainyard.client import disks, listing, package, preflight
from trainyard.client.dashboard import Dashboard, UnreachableError
from trainyard.client.errors import ClientError
from trainyard.client.package import Packed

GIB = 2**30


def node(address, free, size=100 * GIB, *, head=False, state="ALIVE"):
    raylet = {"nodeManagerAddress": address, "isHeadNode": head, "state": state}
    root = {"free": 1, "total": 2}  # not where Ray's folder is
    return {"raylet": raylet, "disk": {"/": root, "/ray": {"free": free, "total": size}}}


@pytest.fixture
def answer(monkeypatch):
    """Sets the nodes that the dashboard lists."""

    def set_to(*nodes):
        found = {"data": {"summary": [*nodes]}}
        monkeypatch.setattr(Dashboard, "get", lambda *_: found)

    return set_to


def test_each_living_node_is_shown_with_the_disk_of_its_ray_folder(answer, stack):  # B26
    answer(
        node("10.0.0.3", 25 * GIB),
        node("10.0.0.2", GIB // 2, head=True),
        node("10.0.0.4", GIB, state="DEAD"),
        node("10.0.0.5", GIB) | {"disk": {}},  # it has just started
        node("10.0.0.6", 1, size=1),  # a pod of a cluster that others made
    )
    assert disks.row(stack) == "head 0.5 of 100.0 GiB free; 10.0.0.3 25.0 of 100.0 GiB free"
    answer()
    assert disks.row(stack) == "not known"
    answer({"raylet": {}})
    assert disks.row(stack) == "not known"
    box = {"hostname": "box", "bootTime": 1795902299.0}
    mine = [node(f"10.0.0.{i}", GIB, head=i == 2) | box for i in (4, 2, 3)]
    # Another machine with its name, which clouds give more than once.
    answer(*mine, node("x", GIB) | box | {"bootTime": 1.0})
    here = "head, 10.0.0.3, 10.0.0.4"
    assert disks.row(stack) == f"{here} 1.0 of 100.0 GiB free; x 1.0 of 100.0 GiB free"
    answer({}, None, node("10.0.0.7", GIB))  # F69
    assert disks.row(stack) == "10.0.0.7 1.0 of 100.0 GiB free"


def test_a_dashboard_that_is_down_is_said_and_stops_no_upload(stack, monkeypatch):  # B26
    monkeypatch.setattr(Dashboard, "get", Mock(side_effect=UnreachableError("NewConnectionError")))
    assert disks.row(stack) == "not known: the dashboard does not answer (NewConnectionError)"
    assert disks.known(stack) == []


def test_an_upload_that_fits_no_node_is_refused(stack, tmp_path, monkeypatch, answer):  # B26
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "zeros").write_bytes(bytes(package.MIB))
    monkeypatch.setattr(preflight, "_connect_for", lambda *_: "server")
    monkeypatch.setattr(preflight, "check_versions", lambda *_: None)
    env = {"working_dir": str(tmp_path / "work"), "excludes": []}
    answer(node("10.0.0.2", package.MIB), node("10.0.0.3", 3 * package.MIB // 2))
    with pytest.raises(ClientError, match=r"takes 2\.0 MiB .* most is 1\.5 MiB, on 10\.0\.0\.3"):
        preflight.run(env, "", stack)
    answer(node("10.0.0.2", package.MIB), node("10.0.0.3", 3 * package.MIB))
    server, packed = preflight.run(env, "", stack)
    assert (server, len(packed.packages)) == ("server", 1)


def test_a_node_that_an_upload_fills_is_named(capsys):  # B26
    packed = Packed({}, {"a.zip": package.pack(listing.Listing())})
    roomy = disks.Disk(node="head", free=6 * GIB, size=100 * GIB)
    disks.check_room([roomy], packed)
    assert "".join(capsys.readouterr()) == ""
    disks.check_room([roomy, disks.Disk(node="10.0.0.3", free=4 * GIB, size=100 * GIB)], packed)
    said = "".join(capsys.readouterr())
    assert "warning: disk of 10.0.0.3 4.0 of 100.0 GiB free: with less than 5% Ray" in said
    assert "head" not in said
