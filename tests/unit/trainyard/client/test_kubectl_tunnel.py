"""The tunnel to a stack on Kubernetes: where it leads, and that it comes back."""

import json
import os

import pytest

from tests.waiting import wait_for
from trainyard.client import connection, info, outputs
from trainyard.client.errors import ClientError

# In the place of kubectl: it says a port of its own for each service, and ends when told to.
KUBECTL = """\
#!/bin/sh
for last; do :; done
there=${last#*:}
local=${last%%:*}
echo "$@" >> $FOLDER/calls
[ -e $FOLDER/refuse ] || [ -e $FOLDER/refuse.$there ] && { echo 'error: no pods' >&2; exit 1; }
echo $$ > $FOLDER/$there.pid
echo "Forwarding from 127.0.0.1:${local:-4$there} -> $there"
exec sleep 600
"""
WHERE = {
    "kubeconfig": "/config",
    "context": "lab",
    "namespace": "team",
    "rayCluster": "lab-ray",
    "services": {"8265": "lab-ray-head-svc", "9000": "lab-versitygw"},
}


@pytest.fixture
def kubectl(tmp_path, monkeypatch):
    path = tmp_path / "kubectl"
    path.write_text(KUBECTL)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("FOLDER", str(tmp_path))
    return tmp_path


@pytest.fixture
def away(values):
    addresses = {
        "dashboardUrl": "http://127.0.0.1:8265",
        "objectStoreEndpoint": "http://127.0.0.1:9000",
        "kubernetes": WHERE,
    }
    return outputs.parse(json.dumps(values | addresses), None, "test")


def test_services_are_brought_here_and_the_outputs_say_so(kubectl, away):
    with connection.to(away, pytest.fail) as opened:
        assert opened.outputs.dashboard_url == "http://127.0.0.1:48265"
        assert opened.outputs.object_store_endpoint == "http://127.0.0.1:49000"
        found = [(route.service, route.there) for route in opened.routes]
        assert ("object store", "lab-versitygw:9000") in found
    assert "service/lab-ray-head-svc :8265" in (kubectl / "calls").read_text()


def test_the_same_ports_are_taken_where_they_are_free(kubectl, away):
    with connection.to(away, pytest.fail, same_ports=True) as opened:
        assert opened.outputs.dashboard_url == "http://127.0.0.1:8265"


def test_a_way_that_is_lost_comes_back_at_the_same_port(kubectl, away):
    said = []
    with connection.to(away, said.append):
        os.kill(int((kubectl / "9000.pid").read_text()), 15)
        wait_for("a new kubectl", lambda: any("is back" in line for line in said))
        assert "service/lab-versitygw 49000:9000" in (kubectl / "calls").read_text()
    assert any("lost the way to lab-versitygw" in line for line in said)


def test_a_service_that_is_not_reached_is_one_message(kubectl, away):
    (kubectl / "refuse").touch()
    with pytest.raises(ClientError, match=r"kubectl says: error: no pods.*run `make up`"):
        connection.to(away, pytest.fail).__enter__()


def test_a_page_that_is_down_keeps_no_command_from_the_others(kubectl, away):
    (kubectl / "refuse.9000").touch()
    said = []
    with connection.to(away, said.append) as opened:
        assert opened.outputs.dashboard_url == "http://127.0.0.1:48265"
        assert [route.service for route in opened.routes] == ["Ray dashboard"]
    assert "service lab-versitygw" in said[0]
    assert "no pods" in said[0]


def test_info_says_where_the_stack_is_and_how_to_find_its_head(kubectl, away):  # E4
    (kubectl / "refuse").touch()
    rows = dict(info.addresses(away))
    assert rows["runs on"].startswith("namespace team of context lab")
    labels = "ray.io/cluster=lab-ray,ray.io/node-type=head"
    assert rows["head's pod"].endswith(f"get pods --selector {labels}")
    (kubectl / "kubectl").write_text("#!/bin/sh\necho pod/lab-ray-head-x1\n")
    assert dict(info.addresses(away))["head's pod"] == "lab-ray-head-x1"
