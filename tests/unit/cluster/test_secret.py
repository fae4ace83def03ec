"""Secrets are drawn once, and stay as they are until they are rotated."""

import ast
from pathlib import Path

import pytest

from cluster import secret
from cluster.secret import SecretProvider

ROOT = Path(__file__).parents[3]
# Each place that draws a secret, with the name by which it is rotated. One that is an identity and
# proves nothing has its reason instead.
DRAWN = {
    ("cluster/gateway.py", "{self.name}-password"): "gateway-password",
    ("cluster/grafana.py", "{self.name}-{ADMIN}"): "grafana-admin",
    ("cluster/notebook.py", "{self.name}-token"): "notebook-token",
    ("cluster/object_store.py", "{name}{KEY}"): "object-store-root",
    ("cluster/object_store.py", "name"): "object-store-root",
    ("cluster/page.py", "{self.name}-password"): "page-password",
    ("cluster/tracking.py", "{self.name}-{USER}"): "tracking-admin",
    ("cluster/tracking.py", "{self.name}-session-key"): "tracking-session",
    ("cluster/descriptor.py", "ray-token"): "ray-token",
    ("cluster/descriptor.py", "serve-token"): "serve-token",
    ("infra/machines/process_runtime.py", "{self._name}-{SWITCH}-token"): "hosts-node-switch-token",
    ("infra/places/kubernetes/runtime.py", "{name}-owner"): (
        "identity: anyone who may look at the objects sees it"
    ),
    ("infra/machines/fleet.py", "idle-end-token"): "idle-end-token",
}
USERS = {"object-store-monitoring", "object-store-training"}  # of the same place as root's


def test_every_secret_is_another():
    provider = SecretProvider()
    drawn = {(provider.create({"bytes": 20.0}).outs or {})["value"] for _ in range(10)}
    assert len(drawn) == 10
    assert all(len(value) == 40 for value in drawn)


@pytest.mark.parametrize(
    ("before", "after", "draws"),
    [
        ({}, {}, False),
        ({}, {"generation": 1}, True),
        ({"generation": 1.0}, {"generation": 1}, False),
        ({"generation": 1}, {"generation": 2.0}, True),
        ({"generation": 2}, {"generation": 1}, False),  # settings of before
        ({"generation": 2}, {}, False),  # settings that were lost
    ],
)
def test_only_a_later_generation_has_another_value(before, after, draws):  # F43
    provider, old = SecretProvider(), {"bytes": 20, "value": "x", **before}
    new = {"bytes": 20.0, "value": None, "former": None, **after}
    diff = provider.diff("id", old, new)
    assert (diff.changes, diff.replaces) == (draws, [])
    outs = provider.update("id", old, new).outs or {}
    assert outs["former"] == "x"
    assert len(outs["value"]) == 40


def test_only_another_length_draws_another_secret():
    provider = SecretProvider()
    assert provider.diff("id", {"bytes": 20, "value": "x"}, {"bytes": 32}).replaces == ["bytes"]


def test_no_secret_is_drawn_that_cannot_be_rotated():  # F43
    found = set()
    for path in [*ROOT.glob("cluster/**/*.py"), *ROOT.glob("infra/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and "Secret" in (
                getattr(node.func, "id", ""),
                getattr(node.func, "attr", ""),
            ):
                name = ast.unparse(node.args[0]).removeprefix("f").strip("'\"")
                found.add((str(path.relative_to(ROOT)), name))
    assert found == DRAWN.keys()
    names = {value for value in DRAWN.values() if not value.startswith("identity: ")}
    assert sorted(names | USERS) == sorted(secret.ROTATABLE)


def test_the_page_of_secrets_names_each():  # F43
    page = (ROOT / "docs" / "security.md").read_text().partition("## Rotate a secret")[2]
    for name in secret.ROTATABLE:
        assert f"`{name}`" in page.partition("\n## ")[0], name
