"""The engine's docker provider on a real Docker Engine."""

import json
import sys

import pytest

from tests import quick, ran
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

NAMES = {"web", "plain", "once"}
SECONDS = 20  # for an awaited event


def _health(stack):
    return stack.container("web").attrs["State"]["Health"]["Status"]


def _drift(stack):
    """A report's findings about services, by name."""
    done = ran.run(
        [
            sys.executable,
            *quick.module("infra.operate.drift"),
            "-C",
            stack.project,
            "-s",
            "dev",
            "--json",
        ],
        env=stack.environment,
    )
    report = json.loads(done.stdout)
    assert report["failures"] == []
    # Another project's program has none of its outputs.
    services = [each for each in report["findings"] if each["layer"] == "services"]
    return {each["name"]: each["found"] for each in services}


def test_up_makes_what_is_declared_and_destroy_leaves_nothing(stack):
    output = stack.up()
    assert "Step 1/5" in output
    assert stack.ids().keys() == NAMES
    web = stack.container("web").attrs
    wait_for("its health", lambda: _health(stack) == "healthy", SECONDS)
    host = web["HostConfig"]
    assert {"A=1", "B=2"} <= set(web["Config"]["Env"])
    assert host["ShmSize"] == 64 * 1024**2
    assert host["CapDrop"] == ["ALL"]
    assert host["LogConfig"]["Config"] == {"max-size": "1m", "max-file": "2"}
    assert host["RestartPolicy"]["Name"] == "unless-stopped"
    assert host["Binds"] == [f"{stack.prefix}-volume:/data:rw"]
    assert host["PortBindings"]["80/tcp"] == [{"HostIp": "127.0.0.1", "HostPort": str(stack.port)}]
    networks = web["NetworkSettings"]["Networks"]
    assert networks.keys() == {f"{stack.prefix}-network"}
    assert {"web", "www"} <= set(networks[f"{stack.prefix}-network"]["Aliases"])
    found = stack.container("web").exec_run(["stat", "-c", "%a %U %n", "/etc/test/token"])
    assert found.output.decode().strip() == "444 root /etc/test/token"
    once = stack.container("once")
    assert once.wait(timeout=SECONDS)["StatusCode"] == 3
    assert once.logs() == b"said\n"
    stack.done("destroy", "--yes")
    assert stack.ids() == {}
    assert stack.others() == set()


def test_a_second_up_and_a_refresh_change_nothing_and_show_no_secret(stack):  # F20 F35
    printed = stack.up("--diff", "--debug")
    before = stack.ids()
    for command in (["up"], ["refresh"], ["up", "--refresh"]):
        printed += stack.done(*command, "--yes", "--expect-no-changes", "--diff", "--debug")
    assert stack.ids() == before
    printed += json.dumps(stack.container("web").attrs)
    assert "canary-token" not in printed
    for path in stack.backend.rglob("*.json"):
        assert "canary-token" not in path.read_text()


def test_an_up_with_nothing_to_do_needs_no_engine(stack):
    stack.up()
    stack.environment["DOCKER_HOST"] = "unix:///nonexistent.sock"
    stack.up("--expect-no-changes")


def test_what_is_done_by_hand_is_seen_and_mended(stack):
    stack.up()
    before = stack.ids()

    assert _drift(stack) == {}
    stack.container("plain").kill()
    assert _drift(stack) == {"plain": "stopped"}
    assert "plain drift" in stack.done("refresh", "--yes")
    assert stack.resource("plain")["outputs"]["mustRun"] is False
    assert "plain update done" in stack.up()
    assert stack.ids() == before
    assert stack.container("plain").status == "running"

    stack.container("web").update(
        mem_limit="64m", memswap_limit="128m", restart_policy={"Name": "no"}
    )
    assert _drift(stack) == {"web": "memory 64; memorySwap 128; restart no"}
    output = stack.up("--refresh", "--diff")
    assert "memory: 128 => 64" in output
    assert "web update done" in output
    assert stack.ids() == before
    host = stack.container("web").attrs["HostConfig"]
    assert host["Memory"] == 128 * 1024**2
    assert host["RestartPolicy"]["Name"] == "unless-stopped"

    # The plugin notes that a stopped container has no ports, so that a new one is made.
    stack.container("web").stop(timeout=0)
    assert "web replace done" in stack.up("--refresh")
    stack.container("web").rename(f"{stack.prefix}-away")
    assert "web replace done" in stack.up("--refresh")
    stack.container("plain").remove(force=True)
    assert _drift(stack) == {"plain": "it is gone"}
    output = stack.up("--refresh")
    assert "plain gone" in output
    assert "plain create done" in output
    assert stack.ids().keys() == NAMES

    stack.container("web").remove(force=True)
    stack.client.volumes.get(f"{stack.prefix}-volume").remove()
    output = stack.up("--refresh")
    assert "volume create done" in output
    assert "web create done" in output
    stack.up("--refresh", "--expect-no-changes")


def test_another_context_builds_the_image_and_replaces_its_containers(stack):
    stack.up()
    before = stack.ids()
    (stack.project / "image" / "hello.txt").write_text("hello again\n")
    stack.up("--expect-no-changes")  # the tag is what counts
    assert "image replace done" in stack.up(tag="2")
    assert not set(before.values()) & set(stack.ids().values())
    found = stack.container("plain").exec_run(["cat", "/context/hello.txt"])
    assert found.output == b"hello again\n"
    stack.up("--refresh", "--expect-no-changes")


def _is_running(stack, name):
    return name in stack.ids() and stack.container(name).status == "running"


@pytest.mark.parametrize(
    "moment",
    [
        lambda stack: stack.others(),
        lambda stack: stack.client.images.list(name=f"{stack.prefix}-image"),
        lambda stack: "web" in stack.ids(),
        lambda stack: _is_running(stack, "web"),
        lambda stack: _is_running(stack, "plain"),
    ],
    ids=["network or volume", "image", "container made", "container started", "another one"],
)
def test_killed_while_it_creates(stack, moment):  # F12
    stack.declare(gate=str(stack.folder / "never"))
    stack.killed(lambda: moment(stack))
    stack.declare()
    stack.up()
    assert stack.ids().keys() == NAMES
    assert stack.others() == {f"{stack.prefix}-network", f"{stack.prefix}-volume"}
    urns = [entry["urn"] for entry in stack.resources()]
    assert len(urns) == len(set(urns))
    wait_for("its health", lambda: _health(stack) == "healthy", SECONDS)
    stack.up("--refresh", "--expect-no-changes")
    stack.done("destroy", "--yes")
    assert stack.ids() == {}
    assert stack.others() == set()


def test_an_image_that_cannot_be_built_is_one_error_with_its_last_lines(stack):
    output = stack.fails(fail="1")
    assert output.count("error:") == 1
    assert f"image {stack.prefix}-image:1 cannot be built" in output
    assert "building" in output


def test_a_port_that_is_taken_is_named_and_nothing_half_made_stays(stack):
    taken = stack.foreign("other", ports={"80/tcp": ("127.0.0.1", stack.port)})
    assert f"127.0.0.1:{stack.port}" in stack.fails()
    assert "web" not in stack.ids()
    taken.remove(force=True)
    stack.up()


def test_a_network_in_use_names_its_users(stack):
    stack.up()
    stack.foreign("guest", network=f"{stack.prefix}-network")
    assert f"remove or disconnect {stack.prefix}-guest" in stack.refused("destroy", "--yes")
    stack.container("guest").remove(force=True)
    stack.done("destroy", "--yes")
