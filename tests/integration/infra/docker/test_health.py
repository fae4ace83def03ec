"""A container that keeps ending after it was up."""

import re
import uuid

import pytest

from infra.machines import docker_engine
from infra.places.containers.container import ReadyProvider
from node.life import ServiceError

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

IMAGE = "trainyard-test/base:latest"
PROGRAM = "while [ ! -e /tmp/stop ]; do sleep 0.1; done; echo no such key; exit 3"


def test_a_container_that_keeps_ending_is_told_and_fails_the_next_up(images, wait_for):  # F63
    client, name = docker_engine.client(), f"ty-{uuid.uuid4().hex[:8]}"
    network = client.networks.create(name)
    try:
        container = client.containers.run(
            IMAGE,
            ["sh", "-c", PROGRAM],
            name=name,
            network=name,
            detach=True,
            init=True,
            restart_policy={"Name": "unless-stopped"},
        )
        props = {"container": container.id, "network": name, "alias": "web", "once": False}
        props |= {"checks": [["true"]], "processes": 0, "timeout": 60}
        provider = ReadyProvider()
        made = provider.create(props).outs
        assert not provider.diff("web", made, props).changes
        assert container.exec_run(["touch", "/tmp/stop"]).exit_code == 0
        # Fewer ends are a fault only until it runs again, which it does a moment later.
        said = r"([3-9]|\d\d) times in the last 10 min \(exit code 3\); its log says: no such key"
        wait_for(lambda: re.search(said, provider.fault("web", made)), 60)
        assert provider.diff("web", made, props).changes
        with pytest.raises(ServiceError, match="no such key"):
            provider.update("web", made, props)
        container.stop(timeout=0)
        assert provider.fault("web", made).startswith("web ended")
    finally:
        for each in client.containers.list(all=True, filters={"name": name}):
            each.remove(force=True)
        network.remove()
