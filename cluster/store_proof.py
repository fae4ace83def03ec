"""Proof that a running object store refuses requests that some stores accept, as advisories say.

Each request is sent once, as by an attacker who knows root's access key and no secret key. Objects
that a store writes for it are removed.
"""

import base64
import io
import secrets
import tarfile
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import urllib3

from node.life import ServiceError

REQUEST_SECONDS = 10
FORGED = "0" * 64  # a signature
TRAILER = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
DOCUMENT = "docs/security.md"


def prove(endpoint: str, bucket: str, access_key: str, remove: Callable[[str, str], Any]) -> None:
    """Send the requests to a store at host:port, as a user that may write to an existing bucket.

    `remove` removes an object, from bucket and name.

    Raises:
        ServiceError: one was served; the message names its advisory.
    """
    served = []
    pool = urllib3.PoolManager(timeout=urllib3.Timeout(total=REQUEST_SECONDS), retries=0)
    for advisory, forge in ADVISORIES.items():
        name = f".trainyard-proof-{secrets.token_hex(8)}"
        target, headers, body = forge(bucket, name, access_key)
        answer = pool.request("PUT", f"http://{endpoint}{target}", headers=headers, body=body)
        if answer.status < 300:
            served.append(advisory)
            remove(bucket, name)
    if served:
        raise ServiceError(
            f"the object store at {endpoint} served a request with a forged signature: "
            f"{' and '.join(served)}. Anyone who reaches its port could write to every bucket. Its "
            "program is not the one that this project builds: remove the image that the setting "
            f"images names for it, or name one where these are fixed ({DOCUMENT}), or set "
            "objectStore to versitygw; then run `up` again"
        )


def unsigned_trailer(bucket: str, name: str, access_key: str) -> tuple[str, dict[str, str], bytes]:
    """Return target, headers and body of a PUT whose credential is in the query only."""
    text = b"proof"
    checksum = base64.b64encode(zlib.crc32(text).to_bytes(4, "big"))
    body = b"%x\r\n%s\r\n0\r\nx-amz-checksum-crc32:%s\r\n\r\n" % (len(text), text, checksum)
    headers = {
        "X-Amz-Content-Sha256": TRAILER,
        "X-Amz-Decoded-Content-Length": str(len(text)),
        "X-Amz-Trailer": "x-amz-checksum-crc32",
        "X-Amz-Date": _now(),
        "Content-Encoding": "aws-chunked",
    }
    return f"/{bucket}/{name}?{_presigned(access_key)}", headers, body


def snowball(bucket: str, name: str, access_key: str) -> tuple[str, dict[str, str], bytes]:
    """Return target, headers and body of an archive that is to be unpacked to one object."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        entry = tarfile.TarInfo(name)
        entry.size = 5
        tar.addfile(entry, io.BytesIO(b"proof"))
    date = _now()
    headers = {
        "X-Amz-Content-Sha256": TRAILER,
        "X-Amz-Date": date,
        "X-Amz-Meta-Snowball-Auto-Extract": "true",
        "Authorization": f"AWS4-HMAC-SHA256 Credential={_credential(access_key, date)}, "
        f"SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature={FORGED}",
    }
    return f"/{bucket}/{name}.tar", headers, archive.getvalue()


ADVISORIES: dict[str, Callable[[str, str, str], tuple[str, dict[str, str], bytes]]] = {
    "CVE-2026-40344": unsigned_trailer,
    "CVE-2026-41145": snowball,
}


def _presigned(access_key: str) -> str:
    date = _now()
    return urlencode(
        {
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
            "X-Amz-Credential": _credential(access_key, date),
            "X-Amz-Date": date,
            "X-Amz-Expires": "600",
            "X-Amz-SignedHeaders": "host",
            "X-Amz-Signature": FORGED,
        }
    )


def _credential(access_key: str, date: str) -> str:
    return f"{access_key}/{date[:8]}/us-east-1/s3/aws4_request"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
