"""Files to a folder and to a bucket that is sometimes unavailable."""

import hashlib
import io
import os
import socket
import ssl
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from boto3.exceptions import RetriesExceededError
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError
from botocore.session import Session

from tests import stores, web
from tests.fakes.kubernetes import credentials
from trainyard.client.store import ClientBucket
from trainyard.store import objects, s3_requests

DIGEST = objects.Digest(5, hashlib.sha256(b"hello").hexdigest())


def answer(status: int, code: str) -> ClientError:
    error = {"Code": code, "Message": "m"}
    return ClientError(
        {"Error": error, "ResponseMetadata": {"HTTPStatusCode": status}}, "PutObject"
    )


class Client:
    """An S3 that gives some errors first; a clock that moves when somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.errors: list[Exception] = []
        self.now = 0.0
        self.kept: dict[str, bytes] = {}
        monkeypatch.setattr(objects, "_client", lambda *_: self)
        monkeypatch.setattr(s3_requests.Requests, "send", self.send)
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep)
        monkeypatch.setattr(objects, "time", clock)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def fail(self) -> None:
        if self.errors:
            raise self.errors.pop(0)

    def upload_fileobj(self, source: Any, Bucket: str, Key: str, Config: Any) -> None:  # noqa: N803
        source.read(3)
        self.fail()
        self.kept[Key] = b"hel" + source.read()

    def send(self, _method: str, _key: str, *_: Any, **__: Any) -> s3_requests.Reply:
        try:
            self.fail()
        except ClientError as error:
            said = "<Error><Code>{Code}</Code><Message>{Message}</Message></Error>"
            content = said.format(**error.response["Error"]).encode()
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            return s3_requests.Reply(status, content)
        raise AssertionError("no error is left")


@pytest.fixture
def client(monkeypatch) -> Client:
    return Client(monkeypatch)


@pytest.fixture
def bucket(client) -> objects.Store:
    keys = objects.Keys("user", "canary")
    return objects.BucketStore("ray/first", endpoint="http://127.0.0.1:9", keys=keys)


PASSING = [
    EndpointConnectionError(endpoint_url="http://127.0.0.1:1"),
    ReadTimeoutError(endpoint_url="http://127.0.0.1:1"),
    RetriesExceededError(OSError()),
    answer(503, "SlowDown"),
    answer(409, "ExistingObjectIsDirectory"),
    answer(500, "InternalError"),
]


def test_a_store_that_comes_back_in_time_gets_the_whole_file(client, bucket):  # F22
    client.errors = list(PASSING)
    assert bucket.upload("a/b", io.BytesIO(b"hello")) == DIGEST  # read and hashed again
    assert client.kept == {"first/a/b": b"hello"}
    assert not client.errors


@pytest.mark.parametrize("error", PASSING, ids=lambda error: type(error).__name__)
def test_a_store_that_stays_away_is_one_error(error, client, bucket):  # F22
    client.errors = [error] * 1000
    with pytest.raises(objects.StorageError) as caught:
        bucket.upload("a", io.BytesIO(b"hello"))
    waited = client.now
    assert waited > objects.DEFAULT_PATIENCE_S - objects.LONGEST_PAUSE_S
    assert waited <= objects.DEFAULT_PATIENCE_S
    message = str(caught.value)
    assert message.startswith("cannot store s3://ray/first/a: the store did not do it within 120 s")
    assert "submit the run again" in message


def test_an_upload_that_was_long_is_tried_again(client, bucket, monkeypatch):  # F22
    """Time spent sending before the failure does not count as waiting for the store."""
    upload = client.upload_fileobj

    def slow(*arguments: Any, **named: Any) -> Any:
        client.now += 2 * objects.DEFAULT_PATIENCE_S
        return upload(*arguments, **named)

    monkeypatch.setattr(client, "upload_fileobj", slow)
    client.errors = [answer(503, "SlowDown")]
    assert bucket.upload("a", io.BytesIO(b"hello")) == DIGEST


@pytest.mark.parametrize(
    "error", [answer(403, "AccessDenied"), answer(404, "NoSuchBucket"), answer(507, "StorageFull")]
)
def test_an_answer_that_stays_the_same_is_not_waited_for(error, client, bucket):  # F23
    client.errors = [error]
    with pytest.raises(objects.StorageError, match=error.response["Error"]["Code"]):
        bucket.upload("a", io.BytesIO(b"hello"))
    assert client.now == 0


def test_what_is_not_there_is_not_waited_for(client, bucket):
    client.errors = [answer(404, "NoSuchKey")]
    with pytest.raises(FileNotFoundError, match="s3://ray/first/a"):
        bucket.read("a")
    assert client.now == 0


@pytest.fixture
def folder(tmp_path) -> objects.Store:
    return objects.open_url((tmp_path / "run").as_uri())


def test_a_folder_gives_back_what_it_got(folder, tmp_path):
    assert folder.upload("a/b", io.BytesIO(b"hello")) == DIGEST
    folder.write("c", b"1")
    assert folder.sizes() == {"a/b": 5, "c": 1}
    assert folder.read("c") == b"1"
    assert folder.download("a/b", tmp_path / "copy") == DIGEST
    assert (tmp_path / "copy").read_bytes() == b"hello"
    with pytest.raises(FileNotFoundError):
        folder.read("d")


def test_what_is_deleted_leaves_no_empty_folder(folder, tmp_path):
    folder.write("a/b/c", b"1")
    folder.write("a/d", b"1")
    folder.delete("a/b/c", "not/there")
    assert sorted(path.name for path in (tmp_path / "run").rglob("*")) == ["a", "d"]


def test_a_write_that_fails_leaves_what_was_there(folder, tmp_path, monkeypatch):  # F23
    folder.write("a", b"before")
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(objects.StorageError, match=r"No space left on device.*make room"):
        folder.upload("a", io.BytesIO(b"after"))
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["a"]
    assert folder.read("a") == b"before"


def test_another_kind_of_store_is_refused():
    class Other:
        type_name = "gcs"

    with pytest.raises(ValueError, match="a store of kind 'gcs' is not known"):
        objects.open_folder(Other(), "bucket/run")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a store of kind 'gs' is not known"):
        objects.open_url("gs://bucket/run")


def test_no_proxy_of_the_environment_is_asked_for_the_store(monkeypatch):  # F58
    with socket.create_server(("127.0.0.1", 0)) as proxy, socket.socket() as store:
        store.bind(("127.0.0.1", 0))  # and does not listen
        proxy.setblocking(False)
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{store.getsockname()[1]}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
        monkeypatch.setenv(objects.PATIENCE_VARIABLE, "0")
        stores.forget_clients()
        bucket = objects.open_url("s3://b")
        with pytest.raises(objects.StorageError):
            bucket.upload("a", io.BytesIO(b"1"))
        with pytest.raises(objects.StorageError):
            bucket.write("a", b"1")
        with pytest.raises(BlockingIOError):
            proxy.accept()


REFUSED = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"


class Service:
    """A bucket that first gives the listed answers, and then accepts everything."""

    def __init__(self) -> None:
        self.due: list[int] = []
        self.kept: dict[str, bytes] = {}

    def answer(self, asked: web.Request) -> web.Said:
        status = self.due.pop(0) if self.due else 200
        if status == 200:
            assert "Credential=user/" in asked.headers["Authorization"]
            assert "/eu-1/s3/" in asked.headers["Authorization"]
            self.kept[asked.path] = asked.body
        return status, b"" if status == 200 else REFUSED


@pytest.fixture
def service(tmp_path, monkeypatch) -> Iterator[Service]:
    """A bucket as a node's environment names it."""
    keys = tmp_path / "credentials"
    keys.write_text("[default]\naws_access_key_id = user\naws_secret_access_key = canary\n")
    made = Service()
    with web.serving(made.answer) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(keys))
        monkeypatch.setenv("AWS_REGION", "eu-1")
        stores.forget_clients()
        yield made
        stores.forget_clients()


def test_a_busy_store_is_asked_until_it_takes_a_small_file(service, monkeypatch):  # F22
    monkeypatch.setattr(objects, "FIRST_PAUSE_S", 0.01)
    service.due = [503, 503, 500]
    objects.open_url("s3://ray/prefix").write("a b/1.json", b"{}")
    assert service.kept == {"/ray/prefix/a%20b/1.json": b"{}"}


def test_a_refusal_is_told_at_once(service):
    service.due = [403]
    with pytest.raises(
        objects.StorageError, match=r"s3://ray/1: AccessDenied no; .*repair the store"
    ):
        objects.open_url("s3://ray").write("1", b"")


@pytest.mark.usefixtures("service")
def test_a_store_that_stays_away_ends_the_patience(monkeypatch):
    monkeypatch.setenv(objects.PATIENCE_VARIABLE, "0")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(
        objects.StorageError, match=r"within 0 s \(TRAINYARD_STORE_PATIENCE_S\).* at http://127"
    ):
        objects.open_url("s3://ray").write("1", b"")


def test_a_service_may_have_an_authority_of_its_own(tmp_path, monkeypatch):
    """The same variable counts for small files and for large ones."""
    credentials.make(tmp_path, "127.0.0.1")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "ca.crt"))
    monkeypatch.setenv(objects.PATIENCE_VARIABLE, "0")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "apiserver.crt", tmp_path / "apiserver.key")
    service = Service()
    with web.serving(service.answer, tls=context) as server:
        where, keys = f"https://127.0.0.1:{server.server_port}", objects.Keys("user", "canary")
        bucket = objects.BucketStore("b", endpoint=where, region="eu-1", keys=keys, elsewhere=True)
        bucket.write("small", b"1")
        bucket.upload("large", io.BytesIO(b"2"))
    assert service.kept == {"/b/small": b"1", "/b/large": b"2"}


ODD = {"AWS_PROFILE": "nope", "AWS_REQUEST_CHECKSUM_CALCULATION": "odd", "AWS_DEFAULTS_MODE": "odd"}
ODD |= {"AWS_METADATA_SERVICE_TIMEOUT": "odd"}


@pytest.fixture
def odd_environment(tmp_path, monkeypatch) -> Iterator[None]:
    """All variables that botocore reads, and a configuration that it refuses."""
    (tmp_path / "config").write_text("not a configuration\n")
    known = [names for _, names, *_ in Session.SESSION_VARIABLES.values() if names]
    for names in known:
        for name in [names] if isinstance(names, str) else names:
            monkeypatch.setenv(name, "odd")
    monkeypatch.setenv("AWS_S3_US_EAST_1_REGIONAL_ENDPOINT", "odd")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    stores.forget_clients()
    yield
    stores.forget_clients()


@pytest.mark.usefixtures("odd_environment")
def test_a_stack_with_keys_takes_nothing_from_the_environment():  # F76
    keys = objects.Keys("user", "canary")
    client = objects._client("http://127.0.0.1:9", "eu-1", keys, False)
    assert client.meta.endpoint_url == "http://127.0.0.1:9"
    assert client.meta.region_name == "eu-1"
    assert client.meta.config.request_checksum_calculation == "when_supported"


# F76
@pytest.mark.parametrize(("name", "value"), ODD.items())
@pytest.mark.parametrize("kind", [objects.BucketStore, ClientBucket])
def test_an_odd_variable_is_one_message(name, value, kind, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "user")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    monkeypatch.setenv(name, value)
    monkeypatch.setenv(objects.PATIENCE_VARIABLE, "0")
    stores.forget_clients()
    with pytest.raises(kind.error, match=rf"cannot use s3://b \(.*{value}.*correct .* AWS_"):
        kind("b", endpoint="http://127.0.0.1:9").upload("x", io.BytesIO(b""))
    stores.forget_clients()
