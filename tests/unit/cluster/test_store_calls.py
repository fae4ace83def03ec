"""How a refresh tells a store that is gone from one that refuses."""

import socket
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from minio.error import MinioAdminException, S3Error
from urllib3.exceptions import ProtocolError

from cluster import minio_admin, minio_calls, s3_calls, versitygw_admin, versitygw_calls
from trainyard.access import ssh
from trainyard.access.kubectl import KubectlError

PROPS = {
    "endpoint": "127.0.0.1:9",
    "rootUser": "root",
    "rootPassword": "secret",
    "bucket": "ray",
    "accessKey": "key",
    "secretKey": "s",
    "policy": "{}",
    "statements": "[]",
}


class UserArgs(versitygw_admin.StoreUserArgs):
    """What each of the calls takes."""

    policy: str


ARGS = UserArgs.of(PROPS)
VIA = {"host": "192.0.2.4", "user": "trainyard", "hostKey": "ssh-ed25519 A", "port": 22}
FAR = replace(ARGS, via=VIA)
LOOKS = [s3_calls.has_bucket, minio_calls.has_user, versitygw_calls.has_user]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch) -> None:
    monkeypatch.setattr(s3_calls, "LOST_SECONDS", 0.001)


def _s3_error(code: str) -> S3Error:
    return S3Error(
        response=None,  # type: ignore[arg-type]
        code=code,
        message=None,
        resource=None,
        request_id=None,
        host_id=None,
    )


def _here(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, made: Any) -> None:
    monkeypatch.setattr(module, name, lambda *_, **__: made)


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize(
    ("error", "gone"),
    [
        (ssh.UnreachableError, True),
        (ssh.HostKeyError, True),
        (ssh.LoginRefusedError, False),
        (ssh.NoKeyError, False),
    ],
)
def test_a_machine_that_is_gone_has_nothing(look, error, gone, monkeypatch):
    @contextmanager
    def forwarded(*_: Any) -> Any:
        raise error("said so")
        yield

    monkeypatch.setattr(s3_calls, "forwarded", forwarded)
    if gone:
        assert look(FAR) is False
        return
    with pytest.raises(error):
        look(FAR)


@pytest.mark.parametrize(
    ("provider", "title"),
    [
        (minio_admin.StoreUserProvider(), "MinIO"),
        (versitygw_admin.StoreUserProvider(), "versitygw"),
    ],
)
def test_a_store_that_is_dead_keeps_no_stack_from_its_end(provider, title, capsys, monkeypatch):
    with socket.socket() as closed:  # taken, and nobody listens
        closed.bind(("127.0.0.1", 0))
        props = PROPS | {"endpoint": f"127.0.0.1:{closed.getsockname()[1]}"}
        assert provider.calls.remove_user(UserArgs.of(props), "key") is False
        provider.delete("", props)
    assert capsys.readouterr().err == f"{title} is gone: nothing to remove of its users\n"
    away = Mock(side_effect=KubectlError("no cluster of this context"))
    monkeypatch.setattr(provider.calls, "reached", away)
    assert provider.calls.remove_user(ARGS, "key") is False


def _answering(monkeypatch: pytest.MonkeyPatch, answers: list[Any]) -> None:
    """A store that gives these answers about its bucket, and raises errors among them."""

    def ask(**_: Any) -> Any:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    _here(monkeypatch, s3_calls, "client", SimpleNamespace(bucket_exists=ask))


def test_an_answer_that_is_lost_makes_no_store_that_is_gone(monkeypatch):
    lost = ProtocolError("connection reset")
    answers: list[Any] = [lost, True]
    _answering(monkeypatch, answers)
    assert s3_calls.has_bucket(ARGS)
    answers += [lost, lost]
    assert s3_calls.has_bucket(ARGS) is False
    assert not answers


def test_a_store_that_starts_is_asked_again(monkeypatch):
    answers: list[Any] = [_s3_error("XMinioServerNotInitialized"), True]
    _answering(monkeypatch, answers)
    monkeypatch.setattr(s3_calls, "RETRY_SECONDS", 0)
    assert s3_calls.has_bucket(ARGS)
    assert not answers


@pytest.mark.parametrize(
    ("code", "gone"), [("XMinioAdminNoSuchUser", True), ("AccessDenied", False)]
)
def test_minio_says_whether_a_user_is_there(code, gone, monkeypatch):
    def refuse(_key: str) -> str:
        raise MinioAdminException("404", code)

    _here(monkeypatch, minio_calls, "_admin", SimpleNamespace(user_info=refuse))
    if gone:
        assert minio_calls.has_user(ARGS) is False
        return
    with pytest.raises(MinioAdminException):
        minio_calls.has_user(ARGS)


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (200, "NoSuchBucketPolicy", None),
        (200, "NoSuchBucket", None),
        (200, "AccessDenied", S3Error),
        (403, "", versitygw_calls.AdminError),
    ],
)
def test_versitygw_says_whether_a_user_is_there(status, code, expected, monkeypatch):
    def policy(**_: Any) -> str:
        if code:
            raise _s3_error(code)
        return "key"

    _here(monkeypatch, versitygw_calls, "client", SimpleNamespace(get_bucket_policy=policy))
    listed = SimpleNamespace(status=status, data=b"<Access>key</Access>")
    _here(monkeypatch, versitygw_calls, "_call", listed)
    if expected is None:
        assert versitygw_calls.has_user(ARGS) is False
        return
    with pytest.raises(expected):
        versitygw_calls.has_user(ARGS)
