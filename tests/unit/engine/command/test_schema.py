"""The command resources' inputs: the plugin's defaults, and refusals by name."""

import pytest

from engine.command.provider import CommandProvider
from engine.command.schema import COPY, REMOTE, check, hidden, secret_outputs
from engine.errors import UnsupportedError
from engine.values import UNKNOWN, secret

HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGvZ me@here"
# The SDK adds what the program does not give: user, port and both limits.
CONNECTION = {
    "host": "10.0.0.1",
    "hostKey": HOST_KEY,
    "user": "root",
    "port": 22,
    "dialErrorLimit": 10,
    "perDialTimeout": 15,
}


def _faults(type_=REMOTE, **props):
    given = {"create": "true"} if type_ == REMOTE else {}
    return check(type_, {"connection": CONNECTION} | given | props)[1]


def test_a_connection_is_recorded_as_the_plugin_records_it():
    given = {"connection": {**CONNECTION, "privateKey": "k"}, "create": "true"}
    checked, faults = check(REMOTE, given)
    assert faults == []
    assert checked == {"connection": {**CONNECTION, "privateKey": secret("k")}, "create": "true"}
    # Where the SSH agent is to be asked.
    checked, faults = check(REMOTE, given | {"connection": {**CONNECTION, "privateKey": None}})
    assert (checked["connection"], faults) == (CONNECTION, [])


@pytest.mark.parametrize(
    ("type_", "props", "words"),
    [
        (REMOTE, {"stdin": "x"}, "Command.stdin"),
        (REMOTE, {"update": "x"}, "Command.update"),
        (REMOTE, {"connection": {**CONNECTION, "proxy": {}}}, "Command.connection.proxy"),
        (REMOTE, {"connection": {**CONNECTION, "password": "x"}}, "Command.connection.password"),
        (COPY, {"connection": CONNECTION, "delete": "x"}, "CopyToRemote.delete"),
    ],
)
def test_what_is_not_known_is_refused_by_its_name(type_, props, words):
    with pytest.raises(UnsupportedError, match=f"know {words}: run it with the pulumi CLI"):
        check(type_, props)


def test_types_that_are_not_known_are_refused():
    for type_ in ("command:remote:CopyFile", "command:local:Command"):
        with pytest.raises(UnsupportedError, match=type_):
            CommandProvider(type_, lambda *_: None)


@pytest.mark.parametrize(
    ("connection", "words"),
    [
        ({"hostKey": None}, "connection: hostKey of 10.0.0.1 is missing"),
        ({"hostKey": ""}, "connection: hostKey of 10.0.0.1 is missing"),
        ({"hostKey": "10.0.0.1 ssh-ed25519 AAAA"}, "is not a public key"),
        ({"host": "a b"}, "connection.host: 'a b' is not a host"),
        ({"host": ""}, "connection.host"),
        *(
            ({key: text}, f"connection.{key}")  # F39
            for key in ("host", "user")
            for text in ("x;y", "$(x)", "x\ny", "-oProxyCommand=x y")
        ),
        ({"port": 0}, "connection.port: 0 must be from 1 to 65535"),
        ({"port": "22"}, "connection.port: '22'"),
        ({"dialErrorLimit": -1}, "connection.dialErrorLimit: -1"),
        ({"perDialTimeout": 0.5}, "connection.perDialTimeout: 0.5"),
    ],
)
def test_a_connection_that_cannot_be_is_one_fault(connection, words):
    (fault,) = _faults(connection=CONNECTION | connection)
    assert words in fault


@pytest.mark.parametrize("host", ["gpu-1.example.org", "10.0.0.1", "fe80::1%eth0", UNKNOWN])
@pytest.mark.parametrize("user", ["ubuntu", "LAB\\anna", "anna@lab.example", "_x-1"])
def test_usual_hosts_and_users_are_taken(host, user):
    assert _faults(connection=CONNECTION | {"host": host, "user": user}) == []


def test_a_preview_knows_what_it_cannot_check():
    assert check(REMOTE, {"connection": UNKNOWN, "create": UNKNOWN})[1] == []
    unknown = {**CONNECTION, "hostKey": UNKNOWN, "port": UNKNOWN}
    assert _faults(connection=unknown) == []
    assert _faults(COPY, source=UNKNOWN, remotePath=UNKNOWN) == []


def test_other_faults():
    missing = [f"Command.{key} has to be given" for key in ("connection", "create")]
    assert check(REMOTE, {}) == ({}, missing)
    assert _faults(COPY, remotePath="x") == ["CopyToRemote.source has to be given"]
    assert "source: must be a FileAsset" in _faults(COPY, remotePath="x", source="text")[0]


def test_only_what_a_command_is_given_makes_its_output_a_secret():
    both = ["stdout", "stderr"]
    assert secret_outputs(REMOTE, {"connection": secret(CONNECTION), "create": "x"}) == []
    assert secret_outputs(REMOTE, {"create": secret("x")}) == both
    assert secret_outputs(REMOTE, {"delete": secret("x")}) == both
    assert secret_outputs(REMOTE, {"triggers": [[secret("x")]]}) == both
    assert secret_outputs(COPY, {"source": secret("x")}) == []


def test_of_a_connection_only_its_secrets_are_hidden_from_messages():
    props = {
        "connection": secret({**CONNECTION, "privateKey": secret("k")}),
        "triggers": [secret("s")],
        "create": "c",
    }
    assert sorted(hidden(REMOTE, props)) == ["k", "s"]
    assert list(hidden("other:index:Thing", {"a": secret({"b": ["x"]}), "__c": secret("y")})) == [
        "x"
    ]


def test_triggers_replace_and_all_else_is_left_to_the_engine_to_compare():
    provider = CommandProvider(REMOTE, lambda *_: None)
    same = provider.diff("id", {"create": "a", "triggers": [1]}, {"create": "b", "triggers": [1]})
    assert (same.changes, same.replaces, same.delete_before_replace) == (None, [], False)
    for triggers in ([2], [1, 1], None):
        other = provider.diff("id", {"triggers": [1]}, {"triggers": triggers})
        assert other.replaces == ["triggers"]
