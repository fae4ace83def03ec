"""A stack whose ports are taken gets others, in its settings."""

import os
import sys

import pytest
import yaml

from cluster import services
from infra.operate import find_ports
from node import ports

OWN = {"project": "p", "stack": "lab"}
FIRST = services.PORTS["dashboardPort"].default


@pytest.fixture
def taken(monkeypatch) -> dict[int, int | None]:
    """Ports that programs listen on, to be filled; no other claims."""
    held: dict[int, int | None] = {}
    monkeypatch.setattr(ports, "listeners", lambda: held)
    monkeypatch.setattr(find_ports.claims, "every", list)
    return held


def test_the_first_offset_with_which_no_port_meets_another_is_found(taken, monkeypatch):  # F64
    assert find_ports.offset(**OWN, settings={}) == 0
    taken[FIRST] = None
    assert find_ports.offset(**OWN, settings={"portOffset": 200}) == 200
    taken |= {FIRST + 200: 1, 27365 + 64 + 100: 1}  # the last worker's agent
    assert find_ports.offset(**OWN, settings={"portOffset": 200}) == 300
    assert find_ports.offset(**OWN, settings={"dashboardPort": FIRST + 1}) == 0
    assert find_ports.offset(**OWN, settings={"hosts": ["gpu1"], "portOffset": 300}) == 400
    taken |= dict.fromkeys(range(1024, 65536))
    with pytest.raises(ValueError, match="none has all ports free"):
        find_ports.offset(**OWN, settings={})


@pytest.mark.parametrize(("stack", "found"), [("lab", 0), ("dev", 100)])
def test_a_stack_keeps_the_ports_that_it_has(taken, stack, found, monkeypatch):  # F64
    mark = find_ports.claims.FolderMark(id="x", project="p", stack=stack)
    claim = {"mark": mark, "user": os.getuid(), "ports": {"dashboardPort": [FIRST]}}
    monkeypatch.setattr(find_ports.claims, "every", lambda: [claim | {"network": ""}])
    monkeypatch.setattr(ports, "label", lambda _: "x stack lab")
    taken[FIRST] = os.getpid()
    assert find_ports.offset(**OWN, settings={}) == found
    # Another program took the port before the stack could.
    monkeypatch.setattr(ports, "label", lambda _: "")
    assert find_ports.offset(**OWN, settings={}) == 100


@pytest.mark.usefixtures("taken")
@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("p:portOffset: 100", "Pulumi.lab.yaml: all ports are free, or this stack's own, with"),
        ("p:gcsPort: many", "error: no portOffset for"),
        ("[", "error: no portOffset for"),
        (None, "No such file"),
    ],
)
def test_the_offset_is_written_by_the_writer_of_settings(  # F64
    config, said, tmp_path, taken, monkeypatch, capsys
):
    taken[FIRST + 100] = 1
    (tmp_path / "Pulumi.yaml").write_text("name: p\nruntime: python\nmain: .\n")
    settings = tmp_path / "Pulumi.lab.yaml"
    if config is not None:
        settings.write_text(f"# mine\nconfig:\n  {config}\n")
    monkeypatch.setattr(sys, "argv", ["find_ports", "-C", str(tmp_path), "-s", "lab"])
    right = said.startswith("Pulumi")
    assert find_ports.main() == (0 if right else 1)
    told = capsys.readouterr()
    assert said in told.out + told.err
    if right:
        assert settings.read_text().startswith("# mine\n")
        assert yaml.safe_load(settings.read_text())["config"]["p:portOffset"] in (0, "0")
