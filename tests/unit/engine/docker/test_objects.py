"""Networks without a real Docker Engine: cases that need two operations at once."""

from types import SimpleNamespace

from engine.docker.objects import Network

NEWS = {"name": "lab", "ipamDriver": "default", "labels": [{"label": "stack", "value": "lab"}]}


def _network(id_, **labels):
    return {
        "Id": id_,
        "Name": "lab",
        "Labels": labels,
        "Driver": "bridge",
        "Internal": False,
        "Attachable": False,
        "Ingress": False,
        "EnableIPv6": False,
        "IPAM": {"Driver": "default", "Options": {}, "Config": []},
        "Options": {},
        "Scope": "local",
    }


def test_a_network_that_a_killed_operation_had_asked_for_goes():  # F12
    there = {"theirs": _network("theirs", stack="other")}

    def create(*_, **__):
        for id_ in ("late", "ours"):
            there[id_] = _network(id_, stack="lab")
        return {"Id": "ours"}

    client = SimpleNamespace(
        create_network=create,
        networks=lambda names: list(there.values()),
        remove_network=there.pop,
        inspect_network=there.__getitem__,
    )
    assert Network(client, print).create(NEWS).id == "ours"
    assert set(there) == {"theirs", "ours"}
