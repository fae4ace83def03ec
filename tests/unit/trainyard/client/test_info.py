"""The output of `train info` for a stack on other machines, with its end time."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from trainyard.access import typed
from trainyard.client import info, outputs

SSH = outputs.Ssh(
    host="203.0.113.7",
    port=22,
    user="ubuntu",
    host_key="ssh-ed25519 AAAA",
    key_file="~/.ssh/key.pem",
    private_key="canary-private-key",
)


def ending(stack, **left):
    # Half a minute more: the test may take some of it.
    moment = datetime.now(UTC) + timedelta(seconds=29) + timedelta(**left)
    return replace(stack, stack="lambda", ssh=SSH, expires_at=moment)


def test_this_machine_needs_no_words(stack):
    names = [name for name, _ in info.addresses(stack)]
    assert not {"runs on", "to have them here", "ends itself"} & set(names)
    assert info.ends_soon(stack) == ""


def test_a_node_is_named_with_its_group_and_what_it_has(stack):
    node = replace(stack.nodes[-1], name="ray-worker-0", group="tpu", resources={"TPU": 4.0})
    rows = dict(info.addresses(replace(stack, nodes=(node,))))
    assert rows["nodes"].startswith("ray-worker-0 (tpu) ")
    assert rows["nodes"].endswith(" 4 TPU")


def test_another_machine_is_named_with_the_way_there(stack):
    rows = dict(info.addresses(ending(stack, hours=3, minutes=5)))
    assert rows["runs on"].startswith("ubuntu@203.0.113.7")
    assert rows["to have them here"].endswith("train tunnel -s lambda")
    assert rows["ends itself"].endswith(" UTC, in 3 h 05 min")
    assert "canary" not in str(rows)


@pytest.mark.parametrize(
    ("minutes", "said"), [(59, "in 59 min"), (1, "in 1 min"), (-90, "1 h 30 min ago"), (61, "")]
)
def test_a_stack_that_ends_within_the_hour_is_told(minutes, said, stack):
    told = info.ends_soon(ending(stack, minutes=minutes))
    assert "\n" not in told
    assert bool(told) == bool(said)
    assert said in told
    assert not told or told.startswith("stack 'lambda' ends itself at ")


def test_a_reserved_stack_says_whose_it_is_and_from_when(stack):  # D3 D4 D5
    begun = datetime(2026, 12, 1, 13, tzinfo=UTC)
    reserved = replace(ending(stack, minutes=29), owner="netid", reserved_from=begun)
    rows = dict(info.addresses(replace(reserved, volumes="mine at /data")))
    assert rows["volumes"] == "mine at /data"
    assert (rows["owner"], rows["reserved from"]) == ("netid", "2026-12-01 13:00 UTC")
    assert rows["ends itself"].endswith(" UTC, in 29 min")
    assert "its services end then, and rented machines with all" in info.ends_soon(reserved)


def test_what_a_stack_has_is_named_without_its_secrets(values):  # D5
    # A45 A46
    names = [name for name, _ in info.addresses(outputs.parse(json.dumps(values), None, "test"))]
    assert not {"MLflow", "Ray Serve", "notebook"} & set(names)
    values |= {"trackingUrl": "http://127.0.0.1:5000", "trackingPassword": "canary-password"}
    values |= {"serveUrl": "http://127.0.0.1:8000"}
    values |= {"notebookUrl": "http://127.0.0.1:8888/lab?token=canary-notebook"}
    changed = outputs.parse(json.dumps(values), None, "test")
    rows = info.addresses(replace(changed, container_prefix="ada-"), "9 GiB", "in 5 min")
    sizes = ("head 0 CPU 0 GPU", "worker-0 2 CPU 0 GPU", "worker-1 4 CPU 1 GPU")
    nodes = f"{'; '.join(f'{each} 1.0 GiB' for each in sizes)} 4 TPU"
    own = {
        "stack": f"dev (Ray 2.60.0, Python {values['pythonVersion']})",
        "nodes": nodes,
        "disk": "9 GiB",
    }
    own |= {"names begin with": "ada-", "ends when idle": "in 5 min"}
    assert (own | {"results": values["storageUrl"]}).items() <= dict(rows).items()
    assert ("MLflow", "http://127.0.0.1:5000/#/experiments") in rows
    for label, name in (("its password", "trackingPassword"), ("its token", "serveToken")):
        shown = typed.command(f"train output {name} --show-secrets -s dev")
        assert (label, shown) in rows
    assert dict(rows)["Ray Serve"].startswith("http://127.0.0.1:8000 ")
    assert ("notebook", "http://127.0.0.1:8888/lab") in rows
    assert "canary" not in f"{rows} {changed!r}"
    # No upload may hold them.
    assert {"canary-password", "canary-serve-token"} <= set(changed.secrets)


def test_what_is_not_monitored_is_told_here_and_not_with_each_command(stack):
    def said(of):
        return dict(info.addresses(of))["Prometheus"]

    assert said(replace(stack, stack="dev")) == "none: make monitoring, then make up"
    assert said(replace(stack, stack="lab")) == "none: make monitoring, then make up STACK=lab"
    assert said(ending(stack)) == "none: it is not on that machine's PATH (docs/monitoring.md)"
    url = "http://127.0.0.1:9090"
    assert dict(info.addresses(stack.at({"prometheusUrl": url})))["Prometheus"] == url


def test_scripts_read_the_names_of_the_stack_and_no_token(stack):  # D4
    url = "http://127.0.0.1:8888/lab"
    of = {"title": "notebook", "output": "notebookUrl", "login": "", "password": "", "user": ""}
    notebook = outputs.Service(url=f"{url}?token=canary", **of)
    found = info.facts(replace(stack, container_prefix="netid-", services=(notebook,)))
    whose = {"stack": "dev", "owner": "ada", "containerPrefix": "netid-"}
    there = {"nodes": ["head", "worker-0", "worker-1"], "results": stack.storage_url}
    assert found == whose | there | {"services": {"notebook": url}}
