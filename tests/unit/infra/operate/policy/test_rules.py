"""Each rule alone, then all of them on the stacks that this project ships."""

from typing import Any

import pytest

from infra.operate.policy import rules
from infra.operate.policy.rules import RULES, SECRET, SIGNATURE

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
DIGEST = "grafana/grafana@sha256:0a1b"
TAGS = dict.fromkeys((*rules.TAGS, rules.OWNER), "x")
LABELS = [{"label": name, "value": "x"} for name in rules.LABELS]
SSH = {"sourceNetwork": "0.0.0.0/0", "firstPort": 22, "lastPort": 22}


def secret(value: Any) -> dict[str, Any]:
    return {SIGNATURE: SECRET, "value": value}


def of(kind: str, **spec: Any) -> dict[str, Any]:
    """An object of Kubernetes."""
    labels = dict.fromkeys(rules.OBJECT_LABELS, "x")
    return {"manifest": {"kind": kind, "metadata": {"labels": labels}, "spec": spec}}


def pods(*images: str) -> dict[str, Any]:
    """A template of pods."""
    return {"spec": {"containers": [{"name": "a", "image": image} for image in images]}}


# Rule, role and inputs, and the violations.
CASES: list[tuple[str, str, dict[str, Any], list[str]]] = [
    ("control-ports", rules.CONTAINER, {"ports": [{"internal": 1, "ip": "127.0.0.1"}]}, []),
    ("control-ports", rules.CONTAINER, {"ports": [{"internal": 1, "ip": UNKNOWN}]}, []),
    ("control-ports", rules.CONTAINER, {"ports": UNKNOWN}, []),
    ("control-ports", rules.CONTAINER, {"ports": [{"internal": 1}]}, ["listens on 0.0.0.0 and"]),
    (
        "control-ports",
        rules.CONTAINER,
        {"ports": [{"internal": 1, "ip": "10.0.0.1"}], "uploads": [{"content": "open"}]},
        ["listens on 10.0.0.1 and gets no secret"],
    ),
    (
        "control-ports",
        rules.CONTAINER,
        {"ports": [{"internal": 1, "ip": "10.0.0.1"}], "uploads": [{"content": secret("hash")}]},
        [],
    ),
    ("control-ports", rules.PROGRAM, {"health": ["http://127.0.0.3:1/x", UNKNOWN]}, []),
    ("control-ports", rules.PROGRAM, {"health": ["http://localhost:1/x"]}, []),
    ("control-ports", rules.PROGRAM, {"health": ["http://10.0.0.1:1/x"]}, ["listens on 10.0.0.1"]),
    (
        "control-ports",
        rules.PROGRAM,
        {"health": ["http://node-1:1/x"], "secrets": secret({})},
        ["listens on node-1"],
    ),
    (
        "control-ports",
        rules.PROGRAM,
        {"command": ["serve", "--host=0.0.0.0"], "secrets": secret({"password": "x"})},
        [],
    ),
    (
        "control-ports",
        rules.PROGRAM,
        {
            "command": ["/e/bin/ray", "start", "--dashboard-host=0.0.0.0"],
            "secrets": secret({"token": "x"}),
            "environment": {"RAY_AUTH_MODE": "disabled"},
        },
        ["Ray listens on 0.0.0.0 without a token: set RAY_AUTH_MODE=token"],
    ),
    (
        "control-ports",
        rules.CONTAINER,
        {
            "command": ["ray", "start"],
            "envs": ["RAY_AUTH_MODE=token"],
            "uploads": [{"content": secret("x")}],
            "ports": [{"internal": 1, "ip": "0.0.0.0"}],
        },
        [],
    ),
    ("control-ports", rules.OBJECT, of("Service", ports=[{"port": 9000}]), []),
    ("control-ports", rules.OBJECT, of("Service", type="ClusterIP"), []),
    ("control-ports", rules.OBJECT, of("Service", type=UNKNOWN), []),
    ("control-ports", rules.OBJECT, of("Service", type="LoadBalancer"), ["is a Service of type L"]),
    ("control-ports", rules.OBJECT, of("RayCluster", authOptions={"mode": "token"}), []),
    ("control-ports", rules.OBJECT, of("RayCluster"), ["Ray's pods ask for no token"]),
    ("images-by-digest", rules.OBJECT, of("StatefulSet", template=pods(DIGEST, UNKNOWN)), []),
    (
        "images-by-digest",
        rules.OBJECT,
        of("RayCluster", workerGroupSpecs=[{"template": pods("ray:1", "ray:1", "a:2")}]),
        ["takes a:2 without a digest", "takes ray:1 without a digest"],
    ),
    ("results-protected", rules.OBJECT, {**of("PersistentVolumeClaim"), "keep": True}, []),
    (
        "results-protected",
        rules.OBJECT,
        {**of("PersistentVolumeClaim"), "keep": False},
        ["results go with the stack"],
    ),
    ("results-protected", rules.OBJECT, {**of("ConfigMap"), "keep": False}, []),
    ("tags-present", rules.OBJECT, of("Service"), []),
    ("tags-present", rules.OBJECT, {"manifest": {"kind": "Service"}}, ["has no trainyard/project"]),
    ("images-by-digest", rules.IMAGE, {"name": DIGEST}, []),
    ("images-by-digest", rules.IMAGE, {"name": "grafana/grafana:12"}, ["takes grafana/grafana:12"]),
    ("images-by-digest", rules.IMAGE, {"name": "a:1", "build": {"context": "."}}, ["is built"]),
    (
        "images-by-digest",
        rules.IMAGE,
        {"name": "a:1", "build": {"buildArgs": {"BASE_IMAGE": "debian@sha256:0a", "X": "1"}}},
        [],
    ),
    (
        "images-by-digest",
        rules.IMAGE,
        {
            "build": {"buildArgs": {"BASE_IMAGE": "debian@sha256:0a", "GO_IMAGE": "golang:1"}},
            "name": "",
        },
        ["is built from golang:1 without a digest"],
    ),
    ("images-by-digest", rules.CONTAINER, {"image": "sha256:0a"}, []),
    ("images-by-digest", rules.CONTAINER, {"image": UNKNOWN}, []),
    ("images-by-digest", rules.CONTAINER, {"image": "busybox"}, ["takes busybox without a digest"]),
    ("credentials-as-secrets", "any:T", {"rootPassword": "x"}, ["rootPassword is in the clear"]),
    ("credentials-as-secrets", "any:T", {"rootPassword": secret("x"), "password": ""}, []),
    ("credentials-as-secrets", "any:T", {"apiKey": UNKNOWN, "tokenFile": "/t", "keyFile": "k"}, []),
    (
        "credentials-as-secrets",
        "any:T",
        {"host": {"privateKey": "x"}, "envs": ["A=b", "AWS_SECRET_ACCESS_KEY=x"]},
        ["host.privateKey is in", "envs[1] AWS_SECRET_ACCESS_KEY is in"],
    ),
    ("credentials-as-secrets", "any:T", {"envs": secret(["TOKEN=x"])}, []),
    ("credentials-as-secrets", "any:T", {"secrets": secret({"token": "x"})}, []),
    ("end-of-rented", rules.INSTANCE, {"ttlHours": 8}, []),
    ("end-of-rented", rules.INSTANCE, {"ttlHours": UNKNOWN}, []),
    ("end-of-rented", rules.INSTANCE, {"ttlHours": 0}, ["has no end: set ttlHours"]),
    ("end-of-rented", rules.CHOICE, {"maxHourlyCost": 0}, ["has no bound of $ an hour"]),
    ("end-of-rented", rules.CHOICE, {"maxHourlyCost": 1.5}, []),
    ("results-protected", rules.KEEPING[0], {"keep": False}, ["results go with the stack"]),
    ("results-protected", rules.KEEPING[2], {"keep": True}, []),
    ("ssh-not-open", rules.FIREWALL, {"rules": [SSH]}, ["SSH is open to 0.0.0.0/0"]),
    ("ssh-not-open", rules.FIREWALL, {"rules": [SSH | {"sourceNetwork": "10.0.0.0/8"}]}, []),
    ("ssh-not-open", rules.FIREWALL, {"rules": [SSH | {"firstPort": 80, "lastPort": 90}]}, []),
    ("ssh-not-open", rules.FIREWALL, {"rules": UNKNOWN}, []),
    ("tags-present", rules.INSTANCE, {"tags": TAGS}, []),
    ("tags-present", rules.INSTANCE, {"tags": UNKNOWN}, []),
    ("tags-present", rules.INSTANCE, {"tags": {}}, ["has no trainyard:project, trainyard:stack"]),
    ("tags-present", rules.CONTAINER, {"labels": LABELS}, []),
    ("tags-present", rules.CONTAINER, {}, ["has no trainyard.project, trainyard.stack"]),
    ("owner-known", rules.INSTANCE, {"tags": TAGS}, []),
    ("owner-known", rules.INSTANCE, {"tags": TAGS | {rules.OWNER: UNKNOWN}}, []),
    ("owner-known", rules.INSTANCE, {"tags": TAGS | {rules.OWNER: ""}}, ["has no owner"]),
    ("owner-known", rules.INSTANCE, {}, ["has no owner"]),
]


@pytest.mark.parametrize(("name", "role", "props", "expected"), CASES)
def test_a_rule(name, role, props, expected):
    (rule,) = [each for each in RULES if each.name == name]
    found = list(rule.check(f"pulumi-python:dynamic/place:{role}", props))
    assert len(found) == len(expected), found
    for message, begin in zip(found, expected, strict=True):
        assert message.startswith(begin)


def test_each_rule_has_a_violation_among_the_cases():
    assert {name for name, _, _, expected in CASES if expected} == {rule.name for rule in RULES}
