"""What a resource that differs means."""

from typing import Any

import pytest

from infra.operate.drift import resources
from infra.operate.drift.findings import HOSTS, INSTANCES, SERVICES, STORE, TIMERS
from trainyard.access.ssh import HostKeyError, NoKeyError, UnreachableError

CONTAINER = "container:Container"
HOST = {"host": "10.0.0.7", "port": 2222, "user": "ada", "hostKey": "k", "privateKey": "canary"}


def _short(findings: Any) -> list[tuple[str, str, str, str]]:
    return [(each.layer, each.name, each.expected, each.found) for each in findings]


@pytest.mark.parametrize(
    ("type_", "fields", "expected"),
    [
        (CONTAINER, {"changes": {"mustRun": ("True", "False"), "exitCode": ("nothing", "1")}},
         (SERVICES, "running", "stopped")),
        (CONTAINER, {"changes": {"image": ("sha256:a", "sha256:b")}},
         (SERVICES, "image sha256:a", "image sha256:b")),
        (CONTAINER, {"gone": True}, (SERVICES, "container:Container x", "it is gone")),
        ("docker:Ready", {"changes": {"ready": ("True", "False")}},
         (SERVICES, "running", "stopped")),
        ("lambda:Instance", {"gone": True}, (INSTANCES, "lambda:Instance x", "it is gone")),
        ("lambda:Instance", {"changes": {"healthy": ("True", "False")}},
         (INSTANCES, "a healthy instance", "instance x is unhealthy")),
        ("lambda:Deadline", {"changes": {"at": ("10:00", "12:00")}},
         (TIMERS, "at 10:00", "at 12:00")),
        ("docker:Deadline", {"changes": {"at": ("10:00", "never")}},
         (TIMERS, "at 10:00", "at never")),
        ("minio:User", {"gone": True}, (STORE, "minio:User x", "it is gone")),
        ("versitygw:Bucket", {"gone": True}, (STORE, "versitygw:Bucket x", "it is gone")),
    ],
)  # fmt: skip
def test_each_kind_has_its_layer_and_words(seen, looked, type_, fields, expected):
    findings, failures = resources.different(looked(seen(type_, "x", **fields)), "dev")
    layer, before, after = expected
    assert _short(findings) == [(layer, "x", before, after)]
    assert failures == []
    assert findings[0].action == "make refresh STACK=dev, then make up STACK=dev"


def test_what_follows_from_another_is_told_once(seen, looked):
    instance = seen("lambda:Instance", "i-1", gone=True)
    on_it = seen("process:Data", "data", gone=True, props={"machine": "i-1"})
    container = seen(CONTAINER, "store", changes={"mustRun": ("True", "False")})
    ready = seen("docker:Ready", "ready", changes={"ready": ("True", "False")}, needs={"urn:store"})
    bucket = seen("versitygw:Bucket", "ray", gone=True, needs={"urn:store"})
    whole = seen("minio:User", "user", needs={"urn:store"})
    all_of_them = looked(instance, on_it, container, ready, bucket, whole)
    findings, failures = resources.different(all_of_them, "dev")
    assert [each.name for each in findings] == ["i-1", "store"]
    assert failures == []


def test_a_machine_that_cannot_be_reached_is_one_finding(seen, looked):
    other_key = HostKeyError("10.0.0.7 shows another host key")
    one = seen("process:Data", "data", error=other_key, props={"host": HOST})
    two = seen("process:Program", "head", error=other_key, props={"host": HOST})
    off = seen(
        "minio:Bucket", "b", error=UnreachableError("no answer"), props={"via": HOST | {"port": 22}}
    )
    silent = UnreachableError("eve@gpu1 cannot be reached by SSH")
    containers = [seen(CONTAINER, name, error=silent) for name in ("head", "worker")]
    findings, failures = resources.different(looked(one, two, off, *containers), "dev")
    assert [(each.layer, each.name, each.found) for each in findings] == [
        (HOSTS, "ada@10.0.0.7:2222", "10.0.0.7 shows another host key"),
        (HOSTS, "ada@10.0.0.7", "no answer"),
        (HOSTS, "eve@gpu1", "eve@gpu1 cannot be reached by SSH"),
    ]
    assert failures == []
    assert "canary" not in str(findings) + repr(one)


def test_what_says_nothing_of_the_stack_is_a_failure(seen, looked):
    daemon = RuntimeError("no Docker Engine answers")
    several = [seen(CONTAINER, name, error=daemon) for name in "abc"]
    keyless = seen("process:Data", "data", error=NoKeyError("no key here"), props={"host": HOST})
    findings, failures = resources.different(looked(*several, keyless), "dev")
    assert findings == []
    assert failures == ["no Docker Engine answers", "no key here"]


def test_what_is_wrong_with_a_service_is_told(seen, looked):  # F63
    """Also where a refresh has written it down, so that nothing differs from the state."""
    ill = seen("process:Program", "web", fault="web ended 3 times")
    changed = seen("process:Program", "web", gone=True)
    for one, said in ((ill, "web ended 3 times"), (changed, "its files were changed or removed")):
        assert resources.different(looked(one), "dev")[0][0].found.startswith(said)


def test_an_interrupted_operation_is_told(looked):
    (found,) = resources.unfinished_steps(looked(pending=[("creating", "node-0")]), "dev")
    assert (found.name, found.found) == ("node-0", "an interrupted operation was creating it")
