"""Plain requests to a bucket of an S3 service, signed by botocore.

It only uses botocore's signature. The clients of botocore and boto3 first load the description of
all of S3: half a second of processor time for a few kinds of requests.
"""

import logging
import os
import time
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode
from xml.etree import ElementTree as ET

import urllib3
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials, ReadOnlyCredentials
from botocore.exceptions import BotoCoreError
from botocore.httpsession import ProxyConfiguration, get_cert_path
from botocore.utils import get_environ_proxies

from trainyard.store.request_body import PIECE_BYTES, RequestBody

REGION = "us-east-1"  # the default of all stores
# versitygw answers this if the last object of the same folder is deleted at that moment.
PASSING_CODE = "ExistingObjectIsDirectory"
CONNECTIONS = 8  # as many as trainyard/client/history.py has readers
CONNECT_TIMEOUT_S, ELSEWHERE_TIMEOUT_S = 1, 5
SEND_TIMEOUT_S = 30  # for a piece of a large body: a busy store may be slow to accept it
BUSY = (500, 502, 503, 504)  # HTTP statuses after which the request is repeated
PASSING_TRIES, PASSING_PAUSE_S = 5, 0.05


class UnansweredError(Exception):
    """The service did not answer; the message is the cause's kind, and why for a certificate."""


class Reply(NamedTuple):
    """The service's answer."""

    status: int
    content: bytes

    @property
    def good(self) -> bool:
        """Whether the request succeeded."""
        return self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def refusal(self) -> tuple[str, str]:
        """Code and text of a refusal, "" for missing ones."""
        said = xml(self.content)
        if said is None:
            return "", ""
        code, text = (said.findtext(name) or "" for name in ("{*}Code", "{*}Message"))
        return code, text


class Requests:
    """Requests to one bucket."""

    def __init__(
        self,
        endpoint: str,
        bucket: str,
        keys: Credentials | ReadOnlyCredentials,
        region: str = REGION,
        *,
        elsewhere: bool = False,
    ) -> None:
        """Asks nothing yet; for `elsewhere` see `BucketStore`."""
        self.endpoint = endpoint.rstrip("/")
        self.bucket = bucket
        self._signature = S3SigV4Auth(keys, "s3", region)
        logging.getLogger("urllib3").setLevel(logging.ERROR)  # nothing about first attempts
        self._connect_s = ELSEWHERE_TIMEOUT_S if elsewhere else CONNECT_TIMEOUT_S
        retries = urllib3.Retry(
            total=2 if elsewhere else 1,
            backoff_factor=0.5 if elsewhere else 0,
            redirect=False,
            status_forcelist=(*BUSY, HTTPStatus.TOO_MANY_REQUESTS) if elsewhere else BUSY,
            raise_on_status=False,
            respect_retry_after_header=False,
        )
        # boto3 trusts its own list of authorities, not the system's: elsewhere both go one way.
        authorities = os.environ.get("REQUESTS_CA_BUNDLE") or (
            get_cert_path(True) if elsewhere else None
        )
        known: dict[str, Any] = {
            "maxsize": CONNECTIONS,
            "retries": retries,
            "ca_certs": authorities,
        }
        proxies = ProxyConfiguration(get_environ_proxies(self.endpoint) if elsewhere else {})
        self._pool = urllib3.PoolManager(**known)
        if proxy := proxies.proxy_url_for(self.endpoint):
            headers = proxies.proxy_headers_for(proxy)
            self._pool = urllib3.ProxyManager(proxy, proxy_headers=headers, **known)

    def send(
        self,
        method: str,
        key: str,
        content: bytes = b"",
        *,
        query: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        timeout: float,
        most: int,
    ) -> Reply:
        """Sends a request for an object; the key "" is the bucket itself.

        `headers` are added to those of the signature. `timeout` is in seconds without a byte of the
        answer, of which at most `most` bytes are read.

        Raises:
            UnansweredError: nothing answered in time.
        """
        url = f"{self.endpoint}/{quote(self.bucket)}/{quote(key, safe='/~')}"
        if query:
            url += "?" + urlencode(query, quote_via=quote)
        # The time-out to connect is also that of each piece that is sent.
        is_large = len(content) > PIECE_BYTES
        connect = SEND_TIMEOUT_S if is_large else self._connect_s
        if is_large:
            headers = {**(headers or {}), "Content-Length": str(len(content))}
        request = AWSRequest(method, url, data=content, headers=headers)
        try:
            self._signature.add_auth(request)
        except BotoCoreError as error:  # a machine's role may have some in a moment
            raise UnansweredError(str(error)) from None
        for left in reversed(range(PASSING_TRIES)):
            try:
                answer = self._pool.request(
                    method,
                    url,
                    body=RequestBody(content) if is_large else content,
                    headers=dict(request.headers),
                    timeout=urllib3.Timeout(connect=connect, read=timeout),
                    preload_content=False,
                )
                reply = Reply(answer.status, answer.read(most))
                if len(reply.content) == most:
                    answer.close()  # its rest must not reach the next request
                answer.release_conn()
            except urllib3.exceptions.HTTPError as error:
                cause = getattr(error, "reason", None) or error
                why = f": {cause}" if isinstance(cause, urllib3.exceptions.SSLError) else ""
                raise UnansweredError(f"{type(cause).__name__}{why}") from None
            if not left or reply.good or reply.refusal[0] != PASSING_CODE:
                break
            time.sleep(PASSING_PAUSE_S)
        return reply


def xml(content: bytes) -> ET.Element | None:
    """Return the root of an answer in XML; None if it is not XML."""
    try:
        return ET.fromstring(content)  # noqa: S314 - expat bounds what entities grow to
    except (ET.ParseError, LookupError, ValueError):  # the last of its encoding
        return None
