"""Signed files in the store: only a holder of the cluster's token can make one that is accepted.

    trainyard-signed-1 00000000001234 <HMAC-SHA256 as 64 hex digits>
    the content, 1234 bytes

Anyone who can write to the bucket has the key of the training user, but not the Ray token. The
signature covers the file's name, so that no file can be passed off as another. It does not tell an
older version of a file from the newest one.
"""

import hashlib
import hmac
import re

from trainyard.errors import JobError

MAGIC = b"trainyard-signed-1 "
LENGTH_DIGITS = 14
HEADER_BYTES = len(MAGIC) + LENGTH_DIGITS + 1 + 64 + 1
HEADER = re.compile(rb"%b(\d{%d}) ([0-9a-f]{64})\n" % (MAGIC, LENGTH_DIGITS))
# Another use of the token must not get the same key.
PURPOSE = b"trainyard: state of a search in the store, version 1"


class SignatureError(JobError):
    """The cluster has not signed this file under this name; the message says why."""


def cluster_key() -> bytes:
    """Return the key, from the Ray token where Ray itself finds it.

    Raises:
        SignatureError: this process has no Ray token.
    """
    from ray import _raylet  # noqa: PLC0415 - only jobs need it

    # Not in Ray's stubs; `ray get-auth-token` reads it the same way.
    loader = _raylet.AuthenticationTokenLoader.instance()  # type: ignore[attr-defined]
    if not loader.has_token(ignore_auth_mode=True):
        raise SignatureError(
            "found no Ray token (RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token)"
        )
    return derived(str(loader.get_raw_token(ignore_auth_mode=True)))


def derived(token: str) -> bytes:
    """Return the key of a cluster with this token."""
    return hmac.digest(token.encode(), PURPOSE, "sha256")


def signed(content: bytes, name: str, key: bytes) -> bytes:
    """Return the signed file; its readers give the same name."""
    return b"%b%0*d %b\n%b" % (
        MAGIC,
        LENGTH_DIGITS,
        len(content),
        _mac(content, name, key),
        content,
    )


def content_of(stored: bytes, name: str, key: bytes) -> bytes | None:
    """Return the content of a signed file; None if it was not completely written.

    Raises:
        SignatureError: the file is not signed, was changed, or has another name.
    """
    header = stored[:HEADER_BYTES]
    if not header.startswith(MAGIC[: len(header)]):
        raise SignatureError("it is not signed")
    if len(header) < HEADER_BYTES:
        return None
    found = HEADER.fullmatch(header)
    if found is None:
        raise SignatureError("it is not signed")
    content = stored[HEADER_BYTES:]
    if len(content) < int(found[1]):
        return None
    right = hmac.compare_digest(found[2], _mac(content, name, key))
    if not right or len(content) > int(found[1]):
        raise SignatureError("its signature is not that of this cluster for this file")
    return content


def _mac(content: bytes, name: str, key: bytes) -> bytes:
    # The name cannot run over into the content: its digest has a fixed length.
    named = hashlib.sha256(name.encode()).digest()
    return hmac.new(key, named + content, "sha256").hexdigest().encode()
