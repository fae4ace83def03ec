"""What is looked at before and waited for after, on an Engine that is a recording."""

import re
import socket
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import requests
from docker.errors import NotFound
from urllib3.exceptions import ReadTimeoutError

from infra.machines import docker_engine
from infra.machines.docker_engine import EngineUnavailableError
from infra.places.containers import container
from infra.places.containers.container import NodeProvider, ReadyProvider
from node.life import ServiceError
from tests.fakes.docker_engine import (
    ENDED,
    FAILED,
    RESTARTING,
    RUNNING,
    FakeContainer,
    FakeEngine,
    api_error,
)
from tests.ports import free_ports

OUR_LABELS = {"trainyard.stack": "dev", "trainyard.project": "lab"}


@pytest.fixture
def engine(monkeypatch) -> FakeEngine:
    fake = FakeEngine()
    monkeypatch.setattr(docker_engine, "client", lambda *_: fake)
    monkeypatch.setattr(
        docker_engine, "info", lambda _: {"ID": "engine", "ServerVersion": "20.10.24"}
    )
    monkeypatch.setattr(container, "POLL_SECONDS", 0)
    monkeypatch.setattr(container.ContainerDriver, "poll_seconds", 0)
    return fake


def _listed(name: str, *ports: int, state: str = "running", **labels: str) -> dict[str, Any]:
    published = [{"PrivatePort": 80, "PublicPort": port} for port in ports]
    return {
        "Names": [f"/{name}"],
        "Labels": labels or None,
        "Ports": [*published, {"PrivatePort": 81}],
        "State": state,
    }


@pytest.fixture
def node() -> dict[str, Any]:
    """What a stack needs, all of which is free."""
    web, db = free_ports(2)
    return {
        "stack": "dev",
        "project": "trainyard",
        "identity": "lab-trainyard-dev",
        "names": ["lab-web", "lab-db"],
        "ports": {"webPort": [web], "dbPort": [db]},
        "address": "",
        "images": {},
        "volumes": [],
        "keep": True,
        "store": "",
    }


def _fault(props: dict[str, Any]) -> list[str]:
    with pytest.raises(ServiceError) as raised:
        NodeProvider().create(props)
    return str(raised.value).splitlines()


def test_a_free_node_is_known_by_its_engine(engine, node):
    # A name is taken only as a whole, and a network of a longer one is another.
    engine.listed = [_listed("lab-web-2", state="exited")]
    engine.nets = [{"Name": "lab-trainyard-dev-2", "Labels": {}}]
    assert NodeProvider().create(node).id == "engine"
    assert engine.pulled == []


HOST = {"host": "gpu1", "port": 22, "user": "ada", "hostKey": "ssh-ed25519 AAAA"}


def test_ports_of_another_machine_are_looked_up_there(engine, node, monkeypatch):
    (web,), (db,) = node["ports"].values()
    lines = [f" 0: 0100007F:{web:04X} 00000000:0000 0A", f" 1: 0100007F:{db:04X} 0100007F:1 01"]
    monkeypatch.setattr(container, "run", lambda *_, **__: "\n".join(lines))
    with socket.create_server(("127.0.0.1", db)):
        line, advice = _fault(node | {"host": HOST})
    assert line == f"on ada@gpu1: port {web} (webPort) is held by another program"
    assert "portOffset" in advice
    # A preview does not ask another machine.
    assert NodeProvider().check({}, node | {"host": HOST}).failures == []


def test_containers_do_not_move_to_another_engine(engine, node, monkeypatch):
    monkeypatch.setattr(container, "run", lambda *_, **__: "")
    moved = node | {"host": HOST | {"host": "gpu2"}}
    NodeProvider().update("engine", node | {"host": HOST}, moved)  # the same at another address
    with pytest.raises(ServiceError, match="are on ada@gpu1, and the settings now name the Docker"):
        NodeProvider().update("another", node | {"host": HOST}, moved)


def test_all_that_is_taken_is_told_at_once(engine, node):
    (web,), (db,) = node["ports"].values()
    engine.listed = [
        _listed("lab-web", state="exited"),
        _listed("other-web", web, **OUR_LABELS),
    ]
    engine.nets = [{"Name": "lab-trainyard-dev", "Labels": OUR_LABELS}]
    node |= {"address": "192.0.2.7", "images": {"images.web": "web:1"}}
    with socket.create_server(("127.0.0.1", db)):
        lines = _fault(node)
    assert len(lines) == 6
    assert lines[0].startswith("a container lab-web is there already (not made by Trainyard). ")
    assert "docker rm -f lab-web" in lines[0]
    assert "config set containerPrefix dev-" in lines[0]
    assert lines[1].startswith("a network lab-trainyard-dev is there already (made by stack dev of")
    assert "docker network rm lab-trainyard-dev" in lines[1]
    assert lines[2].startswith(
        f"port {web} (webPort) is published by container other-web (made by stack dev of lab): "
    )
    assert lines[3].startswith(f"port {db} (dbPort) is held by ")
    assert "portOffset" in lines[4]
    assert lines[5].startswith("publishAddress = '192.0.2.7' is not an address of this machine, ")
    assert engine.pulled == []  # minutes, for a stack that cannot be


def test_a_preview_tells_all_ports_that_are_taken(engine, node):  # F17
    (web,), (db,) = node["ports"].values()
    engine.listed = [_listed("other-web", web)]
    with socket.create_server(("127.0.0.1", db)):
        (fault,) = NodeProvider().check({}, node).failures
        assert NodeProvider().check(node, node).failures == []
    published, held, advice = fault.reason.splitlines()
    assert f"port {web} (webPort) is published by container other-web" in published
    assert held.startswith(f"port {db} (dbPort) is held by ")
    assert "portOffset" in advice


def test_a_pull_that_breaks_off_is_told(engine, node):
    engine.pull_error = ReadTimeoutError(None, None, "Read timed out.")
    (line,) = _fault({**node, "images": {"images.a": "a:1"}})
    assert "cannot be pulled (the Engine broke off: " in line


@pytest.mark.parametrize("error", ["manifest unknown", api_error("manifest unknown")])
def test_images_that_cannot_be_had_are_told_with_their_settings(engine, node, error):  # F31
    engine.pull_error = error
    engine.images_here = {"here:1"}
    digest = "sha256:" + "0" * 64
    node["images"] = {
        "images.a": "here:1",
        "images.b": "r.example:5000/b",
        "images.c": f"c@{digest}",
    }
    lines = _fault(node)
    assert engine.pulled == ["r.example:5000/b:latest", f"c:{digest}"]
    assert len(lines) == 2
    assert lines[0].startswith("images.b = 'r.example:5000/b': this image is not on this machine ")
    assert "cannot be pulled (manifest unknown)" in lines[0]
    assert "config set --path images.b IMAGE" in lines[0]


def test_an_image_that_is_not_here_is_pulled(engine, node, capsys):
    NodeProvider().create({**node, "images": {"images.web": "web:1"}})
    assert engine.pulled == ["web:1"]
    assert capsys.readouterr().err.startswith("pulling web:1\n")


def test_a_change_is_looked_at_for_what_is_new(engine, node):
    (web,), (db,) = node["ports"].values()
    engine.listed = [_listed("lab-web", web)]
    engine.nets = [{"Name": "lab-trainyard-dev", "Labels": OUR_LABELS}]
    old = {
        **node,
        "names": ["lab-web"],
        "ports": {"webPort": [float(web)]},  # as the CLI hands numbers over
        "address": "192.0.2.7",
        "images": {"images.web": "web:1"},
    }
    new = {**node, "address": "192.0.2.7", "images": {"images.web": "web:1", "images.db": "db:1"}}
    NodeProvider().update("engine", old, new)
    assert engine.pulled == ["db:1"]
    engine.listed.append(_listed("lab-db", db))
    with pytest.raises(ServiceError) as raised:
        NodeProvider().update("engine", old, new)
    assert [line[:20] for line in str(raised.value).splitlines()] == [
        "a container lab-db i",
        f"port {db} (dbPort) i"[:20],
        "Run `train up --find-ports`"[:20],
    ]
    assert "containerPrefix" not in str(raised.value)  # a stack that is up keeps its names


@pytest.mark.usefixtures("engine")
def test_another_store_does_not_take_the_place_of_one_that_runs(node):
    old, new = {**node, "store": "minio"}, {**node, "store": "versitygw"}
    with pytest.raises(ServiceError) as raised:
        NodeProvider().update("engine", old, new)
    message = str(raised.value)
    assert "objectStore is now versitygw, and this stack runs minio" in message
    assert "volume lab-trainyard-dev-minio-data" in message
    assert "Nothing was changed" in message
    NodeProvider().update("engine", old, old)


def test_a_preview_needs_no_engine(node, monkeypatch):
    def away(*_: Any) -> NoReturn:
        raise docker_engine.EngineUnavailableError("no Docker Engine answers")

    monkeypatch.setattr(docker_engine, "client", away)
    assert not NodeProvider().check({}, node).failures
    with pytest.raises(docker_engine.EngineUnavailableError):
        NodeProvider().create(node)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [("lab-trainyard-dev", "ada-trainyard-dev", True), ("lab-trainyard-dev", "", False)],
)
def test_another_owner_does_not_take_the_volumes_from_a_stack_that_is_up(  # D4
    node, before, after, refused
):
    provider = NodeProvider()
    assert not provider.check({}, node).failures
    news = node | ({"identity": after} if after else {"names": ["lab-web"]})
    failures = provider.check({**node, "identity": before}, news).failures
    assert bool(failures) == refused
    if refused:
        assert (
            f"are named {before}, and the settings (containerPrefix, owner)" in failures[0].reason
        )
        assert "Nothing was changed. Set them back; or end the stack" in failures[0].reason


def test_an_address_of_this_machine_is_taken(engine, node, monkeypatch):
    entry = SimpleNamespace(family=socket.AF_INET, address="192.0.2.7")
    monkeypatch.setattr(container.psutil, "net_if_addrs", lambda: {"eth0": [entry]})
    assert NodeProvider().create({**node, "address": "192.0.2.7"}).id == "engine"
    (line,) = _fault({**node, "address": "192.0.2.8"})
    assert "which has 192.0.2.7: " in line


def test_what_is_kept_is_said(engine, node, capsys):
    others = {"trainyard.project": "trainyard", "trainyard.stack": "dev-2"}
    engine.kept_volumes = {
        "lab-trainyard-dev-data": others | {"trainyard.stack": "dev"},
        "lab-trainyard-dev-2-data": others,  # the name alone begins like this stack's
        "lab-trainyard-dev2-data": None,
        "food11": None,
    }
    NodeProvider().delete("engine", {**node, "volumes": ["food11"]})
    said = capsys.readouterr().err
    assert "kept: volumes food11 lab-trainyard-dev-data (setting keepData" in said
    engine.kept_volumes = {}
    NodeProvider().delete("engine", node)
    assert capsys.readouterr().err == ""


PROPS: dict[str, Any] = {
    "container": "id",
    "network": "net",
    "alias": "web",
    "checks": [["curl", "http://127.0.0.1:80/"]],
    "once": False,
    "processes": 512.0,  # as the CLI hands numbers over
    "timeout": 5,
}
Ready = Callable[..., str]


@pytest.fixture
def refusal(engine) -> Ready:
    """What is said of a container that does not come up."""

    def run(found: FakeContainer | Exception, **changes: Any) -> str:
        engine.container = found
        with pytest.raises((ServiceError, EngineUnavailableError)) as raised:
            ReadyProvider().create({**PROPS, **changes})
        return str(raised.value)

    return run


def test_its_processes_are_bounded_before_it_is_waited_for(engine):
    for once in (False, True):
        engine.container = found = FakeContainer(ENDED if once else RUNNING)
        ReadyProvider().create({**PROPS, "once": once})
        assert found.processes == 512
        outs = {**PROPS, "once": once}
        assert ReadyProvider().read("web", outs).outs["ready"] is True
    found = FakeContainer(RUNNING)
    engine.container = found
    ReadyProvider().create({**PROPS, "processes": 0})  # where the kernel bounds none
    assert found.processes is None


def test_a_bound_that_was_changed_by_hand_is_seen(engine):
    engine.container = FakeContainer(RUNNING)
    outs = ReadyProvider().create(PROPS).outs
    engine.container.processes = -1
    assert ReadyProvider().read("web", outs).outs["ready"] is False


def test_a_bound_that_the_engine_does_not_take_is_told(refusal, engine):
    engine.refuses = container.BOUND_TRIES
    assert refusal(FakeContainer(RUNNING)) == "web: the Docker Engine says: no cgroup"


def test_a_container_that_ends_while_it_is_bounded_is_bounded_once_the_engine_knows(  # F31
    refusal, engine
):
    engine.refuses = container.BOUND_TRIES - 1
    found = FakeContainer(*[{**RESTARTING, "RestartCount": count} for count in range(9)])
    assert refusal(found).startswith("web ended 3 times (exit code 3)")
    assert found.processes == 512


def test_a_check_that_does_not_end_is_given_up(refusal, monkeypatch):
    monkeypatch.setattr(container, "CHECK_SECONDS", 0.01)
    found, ended = FakeContainer(RUNNING), threading.Event()
    monkeypatch.setattr(found, "exec_run", lambda _: ended.wait(60))
    text = refusal(found, timeout=0)
    ended.set()
    assert "the check 'curl http://127.0.0.1:80/' has not ended after 0.01 s" in text


def test_one_that_runs_once_and_says_nothing_is_given_up(refusal, monkeypatch):
    monkeypatch.setattr(container, "QUIET_SECONDS", 0.01)
    found, ended = FakeContainer(RUNNING), threading.Event()
    monkeypatch.setattr(found, "logs", lambda **_: iter(lambda: ended.wait(60), True))
    text = refusal(found, once=True)
    ended.set()
    assert text.startswith("web has said nothing for 0.01 s and goes on: see `docker logs lab-web`")


def test_one_that_was_disconnected_is_connected(engine):
    engine.container = FakeContainer(RUNNING, networks=("bridge",))
    ReadyProvider().create(PROPS)
    assert engine.connected == [("net", ["web"])]


def test_how_often_it_was_started_before_does_not_count(engine):  # F27
    engine.container = FakeContainer({**RUNNING, "RestartCount": 12})
    assert ReadyProvider().update("web", {}, PROPS).outs["ready"] is True


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NotFound("none"), "web: its container is gone; run `refresh`, then `up` again"),
        (api_error("no space left"), "web: the Docker Engine says: no space left"),
        (requests.ConnectionError("reset"), "web: the Docker Engine no longer answers (reset)"),
    ],
)
def test_what_goes_wrong_with_the_engine_is_told(refusal, error, said):
    assert refusal(error).startswith(said)


def test_an_engine_that_hangs_is_told_by_every_look_at_it(engine, node, monkeypatch):
    def hang(**_: Any) -> Any:
        raise requests.ReadTimeout("Read timed out. (read timeout=60)")

    engine.container = requests.ReadTimeout("Read timed out. (read timeout=60)")
    monkeypatch.setattr(engine.api, "containers", hang)
    monkeypatch.setattr(engine.volumes, "list", hang)
    for look in (
        lambda: NodeProvider().create(node),
        lambda: NodeProvider().delete("engine", node),
        lambda: ReadyProvider().create(PROPS),
        lambda: ReadyProvider().read("web", PROPS),
    ):
        with pytest.raises(EngineUnavailableError, match=r"no longer answers .*timeout=60"):
            look()


def test_one_that_runs_once_shows_its_progress(engine, capsys):
    found = FakeContainer(RUNNING, ENDED)
    engine.container = found
    assert ReadyProvider().create({**PROPS, "once": True}).outs["ready"] is True
    assert capsys.readouterr().err == "web: line 1\nweb: line 2\n"
    assert found.started == 0


def test_one_that_failed_before_runs_again(refusal, engine):
    found = FakeContainer(FAILED, ENDED)
    engine.container = found
    ReadyProvider().create({**PROPS, "once": True})
    assert found.started == 1
    text = refusal(FakeContainer(FAILED), once=True)
    assert text.startswith(
        "web ended (exit code 1)\n  volume food11 is its /mnt\nIts last log lines"
    )


UNHEALTHY = {"Status": "unhealthy", "Log": [{"Output": "curl: (7) connection refused"}]}


@pytest.mark.parametrize(
    ("found", "said"),
    [
        # While it runs again, Docker does not tell how it ended.
        (
            [RUNNING, RUNNING, {**RUNNING, "RestartCount": 3}, {**RESTARTING, "RestartCount": 3}],
            "web ended 3 times (exit code 3)",
        ),
        ([RUNNING, RUNNING, {**ENDED, "ExitCode": 137}], "web ended (exit code 137)"),
    ],
)
def test_one_that_ended_is_not_waited_for(refusal, found, said):
    container = FakeContainer(*found)
    container.complaints = ["connection refused"] * 1000
    assert refusal(container).startswith(said)


@pytest.mark.parametrize(
    ("found", "once", "said"),
    [
        (FakeContainer(RUNNING), False, ""),
        (FakeContainer(RUNNING, networks=()), False, "web is not on its network"),
        (FakeContainer(FAILED), False, "web ended (exit code 1); its log says: line 2"),
        (
            FakeContainer({**RUNNING, "Health": UNHEALTHY}),
            False,
            "web does not answer; its log says: curl: (7)",
        ),
        (FakeContainer(ENDED), True, ""),
        (FakeContainer(FAILED), True, "web has not ended well"),
        (NotFound("none"), True, "web has not ended well"),
    ],
)
def test_a_container_that_is_not_as_it_was_is_told(engine, found, once, said):  # F63
    engine.container = found
    props = {**PROPS, "once": once, "processes": 0, "ready": True}
    assert ReadyProvider().read("web", props).outs["ready"] is not bool(said)
    if not once:  # one that has ended well may go
        assert ReadyProvider().fault("web", props).startswith(said)


def test_a_stopped_container_is_started_by_up(engine):  # F63
    engine.container = found = FakeContainer(ENDED, RUNNING)
    assert ReadyProvider().update("web", {}, PROPS).outs["ready"] is True
    assert found.started == 1


def test_a_stack_of_containers_claims_its_ports_for_as_long_as_it_is_there(  # F64
    engine, node, claimed, monkeypatch
):
    monkeypatch.setattr(container, "run", lambda *_, **__: "")
    NodeProvider().create(node | {"host": HOST})
    assert not [*claimed.iterdir()]  # its ports are another machine's
    (web,) = node["ports"]["webPort"]
    NodeProvider().create(node)
    other = node | {"stack": "lab", "identity": "lab-trainyard-lab", "names": []}
    (fault,) = NodeProvider().check({}, other).failures
    said = f"port {web} (webPort) is claimed by stack dev of project trainyard, made by "
    assert fault.reason.startswith(said)
    with pytest.raises(ServiceError, match=re.escape(said)):
        NodeProvider().create(other)
    assert len([*claimed.iterdir()]) == 1
    NodeProvider().update("engine", node, node | {"ports": {"dbPort": node["ports"]["dbPort"]}})
    NodeProvider().create(other | {"ports": {"webPort": [web]}})
    NodeProvider().delete("engine", node)
    NodeProvider().delete("engine", other)
    assert not [*claimed.iterdir()]


def test_a_log_is_read_of_a_container_that_has_ended_too(engine):
    engine.container = FakeContainer(ENDED)
    assert ReadyProvider().log("web", PROPS, 9) == ["line 1", "line 2"]
    engine.container = NotFound("none")
    with pytest.raises(ServiceError, match="its container is gone"):
        ReadyProvider().log("web", PROPS, 9)
