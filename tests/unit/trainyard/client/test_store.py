"""The store from the client's side: a folder, and what a bucket's faults become."""

import dataclasses
import hashlib
import logging
import socket
import time
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qsl, quote_plus, unquote, urlsplit

import pytest
from minio.credentials import Credentials
from minio.signer import sign_v4_s3

from tests import web
from trainyard.client import preflight, store
from trainyard.client.errors import ClientError
from trainyard.store import objects, s3_requests


def bucket(stack, endpoint):
    return dataclasses.replace(
        stack,
        storage_url="s3://ray",
        object_store_endpoint=endpoint,
        bucket="ray",
        access_key="training",
    )


def test_a_folder_is_written_read_and_left_as_it_was(stack):
    place = store.open_store(stack)
    store.check(place)
    folder = Path(stack.storage_url.removeprefix("file://"))
    assert list(folder.iterdir()) == []
    place.write("run/a/b.json", b"1")
    assert place.get("run/a/b.json") == b"1"
    assert place.get("run/a/c.json") is None
    assert place.folders() == ["run"]
    assert place.folders("run") == ["a"]
    assert place.folders("nothing") == place.folders("run/a/b.json") == []
    with pytest.raises(ClientError, match=r"cannot list .*File name too long"):  # F69
        place.folders("x" * 300)


def test_a_folder_may_have_any_name(stack, tmp_path):  # F62
    folder = tmp_path / "é #1%20"
    for place in (
        store.open_store(dataclasses.replace(stack, storage_url=folder.as_uri())),
        objects.open_url(folder.as_uri()),
    ):
        place.write("a", b"1")
        assert place.where == folder.as_uri()
        assert [path.read_bytes() for path in folder.iterdir()] == [b"1"]


def test_a_folder_that_is_no_folder(stack, tmp_path):  # F24
    (tmp_path / "file").touch()
    other = dataclasses.replace(stack, storage_url=(tmp_path / "file" / "x").as_uri())
    with pytest.raises(ClientError, match=r"cannot write .*Not a directory.*must be a folder"):
        preflight.check_bucket(other)


def test_a_bucket_without_keys_is_reached_as_the_environment_says(stack, monkeypatch):  # E2
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "mine")
    stack = dataclasses.replace(stack, storage_url="s3://results/team", access_key="")
    assert store.open_store(stack).where == "s3://results/team"


def test_an_unknown_kind_of_storage(stack):
    with pytest.raises(ClientError, match="only s3:// and file:// are known"):
        store.open_store(dataclasses.replace(stack, storage_url="gs://b"))


def test_nobody_listens(stack, caplog):  # F24
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
        started = time.monotonic()
        with pytest.raises(ClientError, match=rf"bucket 'ray' at {endpoint}.*nothing answers"):
            preflight.check_bucket(bucket(stack, endpoint))
        assert time.monotonic() - started < 5
    # A warning would be on the terminal, next to the message.
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


def test_somebody_listens_and_says_nothing(stack, monkeypatch):  # F24
    assert preflight.BUCKET_DEADLINE_S < 5
    monkeypatch.setattr(preflight, "BUCKET_DEADLINE_S", 0.4)
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        with pytest.raises(ClientError, match=r"no answer within 0\.4 s"):
            preflight.check_bucket(bucket(stack, f"http://127.0.0.1:{mute.getsockname()[1]}"))


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("NoSuchBucket", "does not exist"),
        ("InvalidAccessKeyId", "does not know this access key"),
        ("SignatureDoesNotMatch", "secret key is wrong"),
        ("AccessDenied", "may not do that"),
        ("RequestTimeTooSkewed", "set the clock"),
        ("SomethingElse", "look at the object store's log"),
    ],
)
def test_each_refusal_says_what_to_do(code, remedy, stack):  # F24
    body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
    said = rf"cannot write .*\({code}\): .*{remedy}"
    with (
        web.serving(lambda _: (403, body)) as server,
        pytest.raises(ClientError, match=said) as caught,
    ):
        preflight.check_bucket(bucket(stack, server.url))
    assert "canary" not in str(caught.value)


class Bucket:
    """A bucket `ray` whose lists have one name a page; it checks each signature on its own."""

    def __init__(self):
        self.objects, self.asked, self.busy = {}, [], 0

    def answer(self, asked):
        self.asked.append(f"{asked.command} {asked.path}")
        if self._is_signed(asked):
            return self._status_and_content(asked)
        return 403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>"

    def _is_signed(self, asked):
        digest = hashlib.sha256(asked.body).hexdigest()
        signed = {name: asked.headers[name] for name in ("Host", "X-Amz-Date")}
        at = datetime.strptime(signed["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        url = urlsplit(f"http://{signed['Host']}{asked.path}")
        headers = signed | {"x-amz-content-sha256": digest}
        if "Range" in asked.headers:
            headers["Range"] = asked.headers["Range"]
        keys = Credentials("training", "canary-secret-0123456789")
        made = sign_v4_s3(
            method=asked.command,
            url=url,
            region=s3_requests.REGION,
            headers=headers,
            credentials=keys,
            content_sha256=digest,
            date=at,
        )
        given = (each["Authorization"].split("Signature=")[1] for each in (made, asked.headers))
        return len({*given}) == 1

    def _status_and_content(self, asked):
        kept = self.objects
        address = urlsplit(asked.path)
        key = unquote(address.path).removeprefix("/ray/")
        query = dict(parse_qsl(address.query, keep_blank_values=True))
        if self.busy:
            self.busy -= 1
            return 503, b"<Error><Code>SlowDown</Code><Message>busy</Message></Error>"
        if asked.command == "PUT":
            kept[key] = asked.body
        elif asked.command == "DELETE":
            kept.pop(key, None)
        elif "list-type" in query:
            return 200, self._page(query)
        elif key not in kept:
            return 404, b"<Error><Code>NoSuchKey</Code></Error>"
        elif "Range" in asked.headers:
            first, last = asked.headers["Range"].removeprefix("bytes=").split("-")
            return 206, kept[key][int(first) : int(last) + 1]
        else:
            return 200, kept[key]
        return 204 if asked.command == "DELETE" else 200, b""

    def _page(self, query):
        kept = self.objects
        start = query["prefix"]
        below = [name.removeprefix(start) for name in kept if name.startswith(start)]
        names = sorted({name.split("/")[0] for name in below if "/" in name})
        at = int(query.get("continuation-token", "0"))
        if "delimiter" in query:
            kind = "CommonPrefixes"
            names = [f"<Prefix>{quote_plus(start + name)}/</Prefix>" for name in names]
        else:
            kind = "Contents"
            names = [
                f"<Key>{quote_plus(start + name)}</Key>"
                f"<Size>{len(kept[start + name])}</Size><ETag>&quot;tag&quot;</ETag>"
                for name in sorted(below)
            ]
        shown = "".join(f"<{kind}>{name}</{kind}>" for name in names[at : at + 1])
        if at + 1 < len(names):
            shown += f"<NextContinuationToken>{at + 1}</NextContinuationToken>"
        space = "http://s3.amazonaws.com/doc/2006-03-01/"
        return f'<ListBucketResult xmlns="{space}">{shown}</ListBucketResult>'.encode()


@pytest.fixture
def s3():
    return Bucket()


@pytest.fixture
def place(stack, s3):
    with web.serving(s3.answer) as server:
        yield store.open_store(bucket(stack, server.url))


NAME = "a b+\u00e9&=~%\x1b"


def test_a_bucket_is_written_read_and_left_as_it_was(place, s3):
    store.check(place)
    assert s3.objects == {}
    for name in ("first", NAME, "third"):
        place.write(f"{name}/config.json", name.encode())
    place.write(f"{NAME}/checkpoint_1/x", b"")
    assert place.get(f"{NAME}/config.json") == NAME.encode()
    assert place.get("nothing") is None
    assert place.folders() == sorted([NAME, "first", "third"])
    assert place.folders(NAME) == ["checkpoint_1"]
    assert place.folders("nothing") == []
    assert "canary" not in str(s3.asked)


def test_a_bucket_is_listed_to_its_last_page_and_read_by_ranges(place, s3):
    for name in ("a", f"b/{NAME}", "c"):
        place.write(f"run/{name}", b"0123456789")
    place.write("run2/d", b"")
    listed = objects.Listed(10, "tag")
    assert place.listed("run") == {"a": listed, f"b/{NAME}": listed, "c": listed}
    assert place.listed("nothing") == {}
    assert place.part(f"run/b/{NAME}", 3, 4) == b"3456"
    with pytest.raises(FileNotFoundError, match="s3://ray/run/nothing"):
        place.part("run/nothing", 0, 1)


@pytest.mark.parametrize(("times", "fails"), [(1, False), (2, True)])
def test_a_store_that_is_busy_is_asked_once_more(times, fails, place, s3):  # F24
    s3.busy = times
    if fails:
        with pytest.raises(
            ClientError, match=r"cannot write .*\(SlowDown\): busy; look at the obj"
        ):
            place.write("a", b"1")
    else:
        place.write("a", b"1")
        assert place.get("a") == b"1"
    assert len(s3.asked) == 3 - fails


ENDLESS = "<ListBucketResult><NextContinuationToken>1</NextContinuationToken></ListBucketResult>"


@pytest.mark.parametrize("answer", ["", "<html>it works", "<html></html>", ENDLESS])
def test_what_answers_and_is_no_store_is_said(answer, place, s3, monkeypatch):
    monkeypatch.setattr(Bucket, "_page", lambda *_: answer.encode())
    with pytest.raises(ClientError, match=r"cannot list .*: the answer is not a list of objects"):
        place.folders()
