"""The client with answers made by hand: its results, and the secrets that it never tells."""

import contextlib
import email.utils
import json
import logging
import socket
import time
import traceback
from unittest.mock import Mock

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.places.lambda_cloud import errors
from infra.places.lambda_cloud.client import Client
from infra.places.lambda_cloud.errors import (
    AccessError,
    InsufficientCapacityError,
    InUseError,
    LambdaError,
    LostReplyError,
    NotFoundError,
    RateLimitedError,
    ServerError,
    UnreachableError,
    error_class,
)
from infra.places.lambda_cloud.model import FirewallRule

KEY = "canary-key-0123456789"
YEAR_2096 = 4e9
UNTIL_2096 = pytest.approx(YEAR_2096 - time.time(), abs=86400)  # whenever the test runs
REQUEST = {"region_name": "us-east-1", "instance_type_name": "gpu_1x_a10", "ssh_key_names": ["key"]}
RULE = FirewallRule(protocol="tcp", source_network="10.0.0.0/8", port_range=(1, 2))
# Every endpoint, with arguments that make it send something.
CALLS = {
    "instance_types": lambda client: client.instance_types(),
    "instances": lambda client: client.instances(),
    "instance": lambda client: client.instance("i"),
    "launch": lambda client: client.launch(REQUEST),
    "terminate": lambda client: client.terminate("i"),
    "rename": lambda client: client.rename("i", "n"),
    "ssh_keys": lambda client: client.ssh_keys(),
    "add_ssh_key": lambda client: client.add_ssh_key("n", "k"),
    "delete_ssh_key": lambda client: client.delete_ssh_key("i"),
    "file_systems": lambda client: client.file_systems(),
    "create_file_system": lambda client: client.create_file_system("n", "r"),
    "delete_file_system": lambda client: client.delete_file_system("i"),
    "firewall_rulesets": lambda client: client.firewall_rulesets(),
    "create_firewall_ruleset": lambda client: client.create_firewall_ruleset("n", "r", [RULE]),
    "update_firewall_ruleset": lambda client: client.update_firewall_ruleset("i", [RULE], "n"),
    "delete_firewall_ruleset": lambda client: client.delete_firewall_ruleset("i"),
}
EVERY_CALL = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
TYPE = {"name": "gpu_1x_a10", "price_cents_per_hour": 75}
MACHINE = {
    "id": "i-1",
    "status": "active",
    "ssh_key_names": ["key"],
    "file_system_names": [],
    "region": {"name": "us-east-1", "description": ""},
    "instance_type": TYPE,
    "actions": {},
}


def answering(status=200, body=b"", headers=None, seen=None):
    """A client that always gets the same answer; requests are added to `seen`."""

    def answer(request):
        if seen is not None:
            seen.append(request)
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return httpx.Response(status, content=content, headers=headers)

    return Client(KEY, transport=httpx.MockTransport(answer))


def failing(error):
    return Client(KEY, transport=httpx.MockTransport(Mock(side_effect=error)))


def without(key):
    return {name: value for name, value in MACHINE.items() if name != key}


# Each would be a KeyError, a TypeError or worse somewhere later.
BAD_BODIES = {
    "nothing": b"",
    "an HTML page": b"<html><body>502 Bad Gateway</body></html>",
    "half of it": json.dumps({"data": [MACHINE]}).encode()[:40],
    "no UTF-8": b'{"data": "\xff\xfe"}',
    "nesting without end": b"[" * 100_000,
    "no data": {"instances": []},
    "an object for a list": {"data": {"0": MACHINE}},
    "no id": {"data": [without("id")]},
    "a number for an id": {"data": [MACHINE | {"id": 1}]},
    "no status": {"data": [without("status")]},
    "no price": {"data": [MACHINE | {"instance_type": {"name": "gpu_1x_a10"}}]},
    "true for a price": {
        "data": [MACHINE | {"instance_type": TYPE | {"price_cents_per_hour": True}}]
    },
    "an object for tags": {"data": [MACHINE | {"tags": {"a": "b"}}]},
    "a tag without a value": {"data": [MACHINE | {"tags": [{"key": "a"}]}]},
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES)
def test_an_answer_that_is_not_of_the_api_is_a_typed_error(body):  # F6
    with pytest.raises(ServerError, match=r"GET https://\S+/instances: status 200 ") as caught:
        answering(200, body).instances()
    assert caught.value.status == 200


@EVERY_CALL
@pytest.mark.parametrize(
    "body", [b"<html>", {"data": 3}, {"data": None}], ids=["html", "3", "null"]
)
def test_no_endpoint_takes_any_answer(call, body):  # F6
    with pytest.raises(ServerError):
        call(answering(200, body))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)
FIELDS = sorted([*MACHINE, "ip", "private_ip", "name", "tags", "hostname"])


@given(
    name=st.sampled_from(sorted(CALLS)),
    status=st.sampled_from([200, 201, 204, 301, 400, 401, 404, 418, 429, 500]),
    body=st.binary(max_size=50)
    | JSON
    | JSON.map(lambda data: {"data": data})
    | JSON.map(lambda error: {"error": error}),
)
def test_whatever_the_answer_only_typed_errors_come_out(name, status, body):  # F6
    with contextlib.suppress(LambdaError):
        CALLS[name](answering(status, body))


@given(changes=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4))
def test_an_instance_is_whole_or_an_error(changes):  # F6
    try:
        (machine,) = answering(200, {"data": [MACHINE | changes]}).instances()
    except ServerError:
        return
    optional = (machine.name, machine.ip, machine.private_ip)
    assert all(isinstance(text, str) for text in (machine.id, machine.status, machine.region))
    assert all(text is None or isinstance(text, str) for text in optional)
    assert all(isinstance(text, str) for pair in machine.tags.items() for text in pair)


def test_an_unknown_status_and_a_null_address_are_no_errors():  # F6
    body = {"data": MACHINE | {"status": "hibernating", "ip": None, "tags": None}}
    machine = answering(200, body).instance("i-1")
    assert (machine.status, machine.ip, machine.tags) == ("hibernating", None, {})


def test_the_token_of_the_notebook_server_is_dropped():
    secrets = {"jupyter_token": "canary-token", "jupyter_url": "https://x/?token=canary-token"}
    machine = answering(200, {"data": MACHINE | secrets}).instance("i-1")
    assert "canary-token" not in repr(machine)


def test_an_error_has_the_words_of_the_api():
    error = {"code": errors.CAPACITY, "message": "What it is.", "suggestion": "What to do."}
    with pytest.raises(
        InsufficientCapacityError, match=r"POST .*/launch: 400 \S+: What it is. What to do."
    ) as caught:
        answering(400, {"error": error}).launch(REQUEST)
    assert caught.value.status == 400
    assert caught.value.code == errors.CAPACITY


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("global/invalid-api-key", AccessError),
        ("global/account-inactive", AccessError),
        ("global/invalid-address", AccessError),
        ("global/object-does-not-exist", NotFoundError),
        ("global/internal-error", ServerError),
        ("global/rate-limited", RateLimitedError),
        ("instance-operations/launch/insufficient-capacity", InsufficientCapacityError),
        ("filesystems/filesystem-in-use", InUseError),
        ("firewall-rulesets/firewall-ruleset-in-use", InUseError),
        ("global/invalid-parameters", LambdaError),
        ("global/quota-exceeded", LambdaError),
        ("global/duplicate", LambdaError),
        ("instance-operations/launch/file-system-in-wrong-region", LambdaError),
    ],
)
def test_a_known_code_decides_whatever_the_status(code, expected):
    assert error_class(400, code) is expected
    assert error_class(500, code) is expected


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (429, "", errors.RateLimitedError),
        (429, "global/something", errors.RateLimitedError),
        (401, "", errors.AccessError),
        (403, "", errors.AccessError),
        (404, "", errors.ServerError),  # not "already deleted"
        (400, "", errors.ServerError),
        (500, "", errors.ServerError),
        (502, "provider/internal-unavailable", errors.ServerError),
        (400, "provider/internal-unavailable", errors.ServerError),
        (400, "global/of-tomorrow", errors.LambdaError),
        (503, "global/of-tomorrow", errors.ServerError),
    ],
)
def test_without_a_known_code_the_status_decides(status, code, expected):
    assert error_class(status, code) is expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Retry-After": "7"}, 7),
        ({"Retry-After": "0.25"}, 0.25),
        ({"Retry-After": "-3"}, 0),
        ({"Retry-After": email.utils.formatdate(YEAR_2096, usegmt=True)}, UNTIL_2096),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "nan"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_seconds_or_a_date_or_nothing(headers, expected):  # F4
    with pytest.raises(RateLimitedError) as caught:
        answering(429, b"", headers).instances()
    assert caught.value.retry_after == expected


@EVERY_CALL
def test_a_redirect_is_not_followed_and_its_host_named(call):
    seen = []
    headers = {"Location": "https://user:pw@cloud.example.com/api/v1/x?key=1"}
    with pytest.raises(LambdaError, match=r"LAMBDA_API_URL=https://cloud\.example\.com$"):
        call(answering(301, b"", headers, seen))
    assert len(seen) == 1


@pytest.mark.parametrize("headers", [{}, {"Location": "http://["}])
def test_a_redirect_to_nowhere_is_an_error_as_well(headers):
    with pytest.raises(LambdaError, match="302"):
        answering(302, b"", headers).instances()


def test_what_was_not_sent_is_told_from_what_was_lost():  # F5
    for error in (httpx.ConnectError("refused"), httpx.ConnectTimeout("slow")):
        with pytest.raises(UnreachableError, match="no connection"):
            failing(error).launch(REQUEST)
    for error in (
        httpx.ReadTimeout("slow"),
        httpx.ReadError(""),
        httpx.WriteError("gone"),
        httpx.RemoteProtocolError("no answer"),
    ):
        with pytest.raises(LostReplyError, match="look before you repeat it"):
            failing(error).launch(REQUEST)


@pytest.mark.parametrize("ids", [[], ["a", "b"], [1]])
def test_a_launch_gives_one_id_or_an_error(ids):
    with pytest.raises(ServerError):
        answering(200, {"data": {"instance_ids": ids}}).launch(REQUEST)


@pytest.mark.parametrize("id_", ["", "../ssh-keys", "a/b", "a?b", "a b", "ü", "a\n"])
def test_what_is_no_id_gets_into_no_path(id_):  # F39
    seen = []
    client = answering(200, {"data": {}}, seen=seen)
    for call in (client.instance, client.delete_ssh_key, client.delete_file_system):
        with pytest.raises(LambdaError, match="is not an id of Lambda Cloud"):
            call(id_)
    assert seen == []


@EVERY_CALL
def test_the_key_is_sent_and_never_told(call, caplog):  # F35
    caplog.set_level(logging.DEBUG)
    seen = []
    told = []
    # A server that repeats the request, with the key.
    echo = {"error": {"code": "global/x", "message": f"bad key {KEY}", "suggestion": KEY}}
    for status, body, headers in (
        (400, echo, {}),
        (500, f"Authorization: Bearer {KEY}".encode(), {}),
        (200, f"<html>{KEY}</html>".encode(), {}),
        (302, b"", {"Location": f"https://x/?{KEY}"}),
        (302, b"", {"Location": f"https://{KEY}/"}),
    ):
        client = answering(status, body, headers, seen)
        with pytest.raises(LambdaError) as caught:
            call(client)
        told += ["".join(traceback.format_exception(caught.value)), repr(caught.value)]
        told += [repr(vars(caught.value)), repr(client), str(client)]
    assert all(request.headers["Authorization"] == f"Bearer {KEY}" for request in seen)
    assert len(seen) == 5
    assert KEY not in "".join(told) + caplog.text


@pytest.mark.parametrize("key", ["", " ", f"{KEY}\n", f"{KEY} x", f"{KEY}ü", f"{KEY}\r\nX: y"])
def test_a_key_that_no_header_can_carry_is_refused_untold(key):  # F1
    with pytest.raises(AccessError) as caught:
        Client(key)
    assert KEY not in str(caught.value)


def test_an_error_is_one_short_line():
    text = "first\nsecond\x1b[31m" + "x" * 5000
    with pytest.raises(LambdaError) as caught:
        answering(400, {"error": {"code": "global/x", "message": text}}).instances()
    assert str(caught.value).isprintable()
    assert "first second" in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.fixture
def proxy(monkeypatch):
    """A proxy of the environment, which accepts connections and never answers."""
    for name in ("all_proxy", "no_proxy", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{server.getsockname()[1]}")
        yield server


def test_the_proxy_of_the_environment_is_used(proxy):
    client = Client(KEY, "https://cloud.lambda.invalid", timeout=0.2)
    with pytest.raises(LambdaError):
        client.instances()
    connection, _ = proxy.accept()
    with connection:
        sent = connection.recv(1000)
    assert sent.startswith(b"CONNECT cloud.lambda.invalid:443 ")
    assert KEY.encode() not in sent


def test_no_proxy_stands_before_the_loopback(proxy):
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = Client(KEY, f"http://127.0.0.1:{server.getsockname()[1]}", timeout=0.2)
        with pytest.raises(LostReplyError):
            client.instances()
        connection, _ = server.accept()
        connection.close()
    with pytest.raises(BlockingIOError):
        proxy.accept()


def test_a_name_is_given_at_the_address_of_its_instance():
    answering(body={"data": {}}, seen=(seen := [])).rename("i", "n")
    assert [(each.method, each.url.path) for each in seen] == [("POST", "/api/v1/instances/i")]
    assert json.loads(seen[0].content) == {"name": "n"}
