"""Where services of several machines go; the whole program is in test_target.py."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pulumi
import pytest

from cluster.service import Port, Volume
from infra.machines.environment import EnvironmentArgs, prepare
from infra.machines.machine import Machine
from infra.machines.process_runtime import ProcessRuntime, ProcessRuntimeArgs, _ports, _python
from node.folders import FolderMark
from tests.host_facts import machine

AGENTS = [Port(number=27365 + i, setting="agentPort") for i in range(4)]
PORTS = [Port(number=8265, setting="dashboardPort"), Port(number=6379, setting="gcsPort"), *AGENTS]


def _machine(index: int, **changes: Any) -> Machine:
    return machine(index, f"/srv/u{index}", **changes)


@pytest.fixture
def within(recorded) -> Callable[..., None]:
    """Do something with a runtime, inside a program."""

    def run(use: Callable[[ProcessRuntime], None], machines: list[Machine]) -> None:
        services = [SimpleNamespace(name=name, shared=name == "minio") for name in ("minio", "ray")]
        settings: Any = SimpleNamespace(
            on_hosts=len(machines),
            state_dir="/tmp/ty",
            data_dir="~/data",
            keep_data=True,
            reservation=None,
            opened=lambda _: PORTS[: 3 + len(machines)],
        )
        mark: Any = SimpleNamespace(props={})
        running: Any = services

        @pulumi.runtime.test
        def program() -> None:
            args = ProcessRuntimeArgs(
                settings=settings, running=running, store="minio", hosts=machines, mark=mark
            )
            use(ProcessRuntime("hosts", args))

        program()

    return run


def test_a_machine_has_the_ports_of_what_runs_there():
    assert _ports(PORTS, 0, several=True) == {
        "dashboardPort": [8265],
        "gcsPort": [6379],
        "agentPort": [27365, 27366],  # the head's and its own worker's
    }
    assert _ports(PORTS, 1, several=True) == {"agentPort": [27367]}
    assert _ports(PORTS, 2, several=True) == {"agentPort": [27368]}


def test_services_find_their_files_on_their_own_machine(within):
    def look(runtime: ProcessRuntime) -> None:
        data, temp = Volume(name="data", keep=True), Volume(name="ray")
        assert runtime.volume("minio", data) == "/srv/u0/data/minio/data"
        assert runtime.volume("ray-worker-1", data) == "/srv/u1/data/ray-worker-1/data"
        assert runtime.volume("ray-worker-1", temp) == "/tmp/ty/ray-worker-1/ray"
        assert runtime.file("ray-head", "ray-token") == "/tmp/ty/ray-head/files/ray-token"

    within(look, [_machine(0), _machine(1)])


def test_only_the_store_listens_beyond_its_machine(within):  # F33
    def several(runtime: ProcessRuntime) -> None:
        assert runtime.listen_address("minio") == "10.0.0.0"
        for service in ("ray-head", "prometheus", "ray-worker-1"):
            assert runtime.listen_address(service) == "127.0.0.1"
        assert [runtime.node_address(i) for i in range(3)] == ["10.0.0.0", "10.0.0.0", "10.0.0.1"]

    def single(runtime: ProcessRuntime) -> None:
        assert runtime.listen_address("minio") == "127.0.0.1"
        assert [runtime.node_address(i) for i in range(2)] == ["127.0.0.2", "127.0.0.3"]

    within(several, [_machine(0), _machine(1)])
    within(single, [_machine(0)])


def test_another_machine_of_the_same_index_is_set_up_again(recorded):
    @pulumi.runtime.test
    def program() -> None:
        mark: Any = pulumi.Output.from_input(
            FolderMark(id="1", project="lab", stack="dev", by="ada")
        )
        prepare([_machine(0, identity="i-1")], EnvironmentArgs(ray="2.60.0"), mark, {})

    program()
    commands = recorded.of_type("remote:Command")
    (first,) = [args.inputs["triggers"] for args in commands.values()]
    assert first[0] == "i-1"
    assert first[1].startswith("agent-")  # and with another content of the agent


def test_a_program_that_is_a_link_is_run_by_the_python_of_its_own_environment(tmp_path):
    program = tmp_path / "other" / "bin" / "ray"
    program.parent.mkdir(parents=True)
    program.touch()
    link = tmp_path / "bin" / "ray"
    link.parent.mkdir()
    link.symlink_to(program)
    assert _python(str(link), here=True) == str(program.with_name("python3"))
    assert _python("/opt/ray/bin/ray", here=False) == "/opt/ray/bin/python3"
