"""`python -m infra.drift` on a real account: instances that are gone, ill or in no state."""

import json

import pytest

from infra import backend
from infra.drift import __main__ as drift
from infra.hosts import identity, local

pytestmark = pytest.mark.integration


def test_instances_that_are_gone_ill_or_unknown(rented, cloud, capsys, monkeypatch):
    rented.declare(count=2)
    rented.done("up")

    def found():
        capsys.readouterr()
        before = rented.state_file.read_bytes()
        cloud.journal.clear()
        code = drift.main(["-C", str(rented.project), "-s", "dev", "--json"])
        assert rented.posts() == []  # a look changes nothing
        assert rented.state_file.read_bytes() == before
        report = json.loads(capsys.readouterr().out)
        instances = [each for each in report["findings"] if each["layer"] == "instances"]
        return code, {each["name"]: each["found"] for each in instances}, report["failures"]

    assert found()[1:] == ({}, [])
    gone, ill = (rented.resource(f"node-{node}")["id"] for node in range(2))
    cloud.account.instances[gone].status = "terminated"
    cloud.account.instances[ill].status = "unhealthy"
    # Like the stack's own, for any reader.
    owner = rented.resource("node-0")["outputs"]["tags"][identity.OWNER]
    monkeypatch.setattr(local, "owner", lambda _: "a-runner")
    tags = {identity.OWNER: owner, identity.ID: "0a1b2c3d", identity.STACK: "lost"}
    tags[identity.BACKEND] = backend.find(rented.project).id()
    lost = cloud.account.add_instance("lost", tags=tags)
    assert found() == (
        2,
        {
            "node-0": "it is gone",
            "node-1": f"instance {ill} is unhealthy",
            f"lost ({lost.id})": "gpu_1x_a10 in us-east-1, 0.75 $/h, in no state",
        },
        [],
    )


def test_an_account_that_cannot_be_asked(rented, monkeypatch, capsys):
    rented.declare(count=1)
    rented.done("up")
    monkeypatch.setenv("LAMBDA_API_KEY", "wrong")
    capsys.readouterr()
    assert drift.main(["-C", str(rented.project), "-s", "dev"]) == 1
    printed = capsys.readouterr().out
    assert "not looked at: " in printed
    assert "Traceback" not in printed
