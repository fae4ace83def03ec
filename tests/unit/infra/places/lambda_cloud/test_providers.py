"""Comparisons and checks without an account; the rest is in the integration tests."""

import base64
import itertools
from unittest.mock import Mock

import dill
import pytest
from pulumi.dynamic.dynamic import serialize_provider
from pulumi.runtime import rpc

from infra.machines import identity
from infra.places.lambda_cloud import machines, providers
from infra.places.lambda_cloud.errors import LambdaError, ServerError
from infra.places.lambda_cloud.model import FileSystem, SshKey
from infra.service.cancellation import CanceledError, Cancellation
from tests.fakes.plain_account import PlainAccount
from tests.ssh_keys import new_key
from trainyard.access.key_file import KeyFileError

CHOICE = {"instanceType": "gpu_1x_a10", "region": "us-east-1"}
INPUTS = {
    "stackId": "0a1b2c3d",
    "name": "node-0",
    "node": 0,
    "count": 2,
    "choices": [CHOICE],
    "sshKeyName": "key",
    "hostname": "node-0",
    "tags": {},
    "userData": "",
    "firewallRulesetIds": {"us-east-1": "r"},
    "fileSystemMounts": {},
    "ttlHours": 8,
}
OUTPUTS = INPUTS | CHOICE | {"firewallRulesetId": "r", "healthy": True}


def _diff(olds=None, **news):
    return providers.InstanceProvider().diff("id", OUTPUTS | (olds or {}), INPUTS | news)


@pytest.mark.parametrize("news", [{"name": "other"}, {"ttlHours": 9}])
def test_changes_in_place(news):
    diff = _diff(**news)
    assert diff.changes
    assert diff.replaces == []


@pytest.mark.parametrize(
    "news",
    [
        {},
        {"choices": [CHOICE | {"region": "us-west-1"}, CHOICE]},
        {"tags": {"trainyard:owner": "ann"}},
        {"hostname": "lambda-ann-0"},  # D4
        {"userData": "other"},
        {"count": 3},
    ],
)
def test_what_counts_from_the_next_launch_on(news):
    assert not _diff(**news).changes


@pytest.mark.parametrize(
    "news",
    [
        {"sshKeyName": "other"},
        {"sshKeyName": rpc.UNKNOWN},
        {"fileSystemMounts": {"/data": "f"}},
        {"choices": [CHOICE | {"region": "us-west-1"}]},
        {"firewallRulesetIds": {"us-east-1": "other"}},
        {"firewallRulesetIds": {}},
    ],
)
def test_what_needs_another_instance(news):
    diff = _diff(**news)
    assert diff.replaces == list(news)
    assert diff.changes
    assert diff.delete_before_replace


def test_an_ill_one_is_replaced():
    diff = _diff({"healthy": False})
    assert (diff.changes, diff.replaces) == (True, ["healthy"])


@pytest.mark.parametrize("key", ["choices", "firewallRulesetIds"])
def test_what_a_preview_does_not_know_replaces_nothing(key):
    assert not _diff(**{key: rpc.UNKNOWN}).changes


@pytest.mark.parametrize(("mode", "told"), [(0o644, "may be read by others"), (0o600, None)])
def test_a_key_file_that_others_can_use_is_told_before_a_launch(tmp_path, mode, told):  # F38
    path = tmp_path / "key.pem"
    new_key(path, "")
    path.chmod(mode)
    news = {"name": "key", "keyFile": str(path)}
    failures = providers.SshKeyProvider().check({}, news).failures
    assert [failure.property for failure in failures] == (["keyFile"] if told else [])
    assert not told or told in failures[0].reason


@pytest.mark.parametrize("held", [True, False])
def test_a_key_that_nobody_can_use_is_told_before_a_launch(tmp_path, monkeypatch, held):  # F38
    path = tmp_path / "key.pem"
    new_key(path, "secret")
    asked = []
    monkeypatch.setattr(providers, "agent_holds", lambda key: asked.append(key) or held)
    news = {"name": "key", "keyFile": str(path)}
    failures = providers.SshKeyProvider().check({}, news).failures
    assert asked == [(tmp_path / "key.pem.pub").read_text().strip()]
    assert [failure.property for failure in failures] == ([] if held else ["keyFile"])
    assert held or f"ssh-add {path}" in failures[0].reason


class Account:
    """SSH keys; an upload may fail, before or after it is done."""

    def __init__(self):
        self.held, self.before, self.after = [], None, None

    def ssh_keys(self):
        return list(self.held)

    def add_ssh_key(self, name, public):
        if self.before:
            raise self.before
        self.held.append(SshKey(id=f"key-{len(self.held)}", name=name, public_key=public))
        if self.after:
            raise self.after
        return self.held[-1]

    def delete_ssh_key(self, id_):
        self.held = [each for each in self.held if each.id != id_]


@pytest.fixture
def key(tmp_path, monkeypatch):
    """A provider of keys with an account, and its properties."""
    account = Account()
    monkeypatch.setattr(providers.SshKeyProvider, "_api", account)
    props = {"name": "key", "keyFile": str(tmp_path / "key.pem"), "stackId": "0a1b2c3d"}
    return providers.SshKeyProvider(), account, props | {"backendId": "ffffffff"}


@pytest.mark.parametrize("done", [False, True])
def test_a_key_whose_making_was_cut_off_is_made_again_and_removed(key, tmp_path, done):  # F11 F12
    provider, account, props = key
    setattr(account, "after" if done else "before", CanceledError("stopped"))
    with pytest.raises(CanceledError):
        provider.create(props)
    assert [*tmp_path.iterdir()] == []
    account.before = account.after = None
    assert provider.find(props) is None
    made = provider.create(props)
    assert len(account.held) == 1
    assert provider.find(props).outs == made.outs
    provider.delete(made.id, made.outs)
    assert account.held == [*tmp_path.iterdir()] == []


def test_a_key_whose_file_cannot_be_written_is_in_no_account(key, monkeypatch):  # F16
    provider, account, props = key
    monkeypatch.setattr(providers.keys, "write", Mock(side_effect=KeyFileError("cannot be made")))
    with pytest.raises(KeyFileError):
        provider.create(props)
    assert account.held == []


def test_a_key_that_somebody_else_made_meanwhile_stays(key):  # F46
    provider, account, props = key
    made = provider.create(props)
    account.held = [account.held[0].model_copy(update={"id": "another"})]
    provider.delete(made.id, made.outs)
    assert [held.id for held in account.held] == ["another"]


class Systems:
    """File systems of an account."""

    def __init__(self, *names):
        self.held = [self.of(name) for name in names]

    def of(self, name):
        return FileSystem.model_validate(
            {"id": f"id-{name}", "name": name, "region": {"name": "r"}, "mount_point": "/data"}
        )

    def file_systems(self):
        return list(self.held)

    def create_file_system(self, name, _region):
        self.held.append(self.of(name))
        return self.held[-1]

    def delete_file_system(self, id_):
        self.held = [each for each in self.held if each.id != id_]


@pytest.mark.parametrize(("there", "left"), [(["data"], ["data"]), ([], [])])
def test_a_file_system_that_was_there_before_is_never_removed(  # F46
    monkeypatch, capsys, there, left
):
    account = Systems(*there)
    monkeypatch.setattr(providers.FileSystemProvider, "_api", account)
    provider = providers.FileSystemProvider()
    provider._cancellation = Cancellation()
    made = provider.create({"name": "data", "region": "r", "keep": False})
    provider.delete(made.id, made.outs)
    assert [each.name for each in account.held] == left
    assert ("kept: file system data" in capsys.readouterr().err) == bool(left)


def test_rules_go_once_the_instances_that_no_state_knows_have_ended(monkeypatch):  # F12
    account, log = PlainAccount(), []
    account.add("stray", tags={identity.ID: "0a1b2c3d"})
    account.delete_firewall_ruleset = lambda id_: log.append((id_, account.ended))
    monkeypatch.setattr(providers.FirewallRulesetProvider, "_api", account)
    provider = providers.FirewallRulesetProvider()
    provider._cancellation = Cancellation()
    provider.delete("0a1b2c3d", {"stackId": "0a1b2c3d", "ids": {"r": "rules"}})
    assert log == [("rules", ["stray"])]


def test_an_instance_whose_end_is_refused_each_time_stays_in_the_state(monkeypatch):  # F9
    account, tries = PlainAccount(), []
    account.add("a")

    def refuse(id_):
        tries.append(id_)
        raise ServerError("try again in 60 seconds")

    account.terminate = refuse
    minutes = itertools.count(step=60).__next__  # each look at the clock is one later
    clock = machines.Clock(sleep=lambda _: None, now=minutes, scale=1.0)
    monkeypatch.setattr(providers.InstanceProvider, "_api", account)
    monkeypatch.setattr(providers.InstanceProvider, "_clock", clock)
    with pytest.raises(LambdaError, match=r"still billed .* it is kept in the state"):
        providers.InstanceProvider().delete("a", {"name": "node-0"})
    assert len(tries) > 1
    assert set(tries) == set(account.held) == {"a"}


def _open_to(*networks):
    rule = {"protocol": "tcp", "firstPort": 22, "lastPort": 22, "description": "SSH"}
    return {"rules": [rule | {"sourceNetwork": network} for network in networks]}


@pytest.mark.parametrize(
    ("networks", "told"),
    [
        (["192.0.2.0/24"], "SSH (port 22) is open to 192.0.2.0/24\n"),
        (
            ["192.0.2.0/24", "0.0.0.0/0"],
            "SSH (port 22) is open to EVERYBODY: 192.0.2.0/24, 0.0.0.0/0\n",
        ),
    ],
)
def test_a_preview_says_what_is_open_to_whom(capsys, networks, told):  # F33
    provider = providers.FirewallRulesetProvider()
    assert provider.check({}, _open_to(*networks)).failures == []
    assert capsys.readouterr().err == told


ALL = [
    each
    for each in vars(providers).values()
    if isinstance(each, type) and issubclass(each, providers.dynamic.ResourceProvider)
]


@pytest.mark.parametrize("kind", ALL)
def test_a_provider_is_recorded_by_its_name_alone(kind):  # F35
    pickled = base64.b64decode(serialize_provider(kind()))
    assert len(pickled) < 100
    assert isinstance(dill.loads(pickled), kind)
    assert not kind.serialize_as_secret_always
