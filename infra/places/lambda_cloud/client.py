"""Lambda Cloud's API, version 1: one method for each endpoint, and no policy.

Nothing is repeated, paced or looked up here (see `pacing`). The API key goes into one header and
nowhere else.
"""

import email.utils
import ipaddress
import math
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
from pydantic import ValidationError

from infra.places.lambda_cloud.errors import (
    AccessError,
    LambdaError,
    LostReplyError,
    RateLimitedError,
    ServerError,
    UnreachableError,
    error_class,
)
from infra.places.lambda_cloud.model import (
    Envelope,
    FileSystem,
    FirewallRule,
    FirewallRuleset,
    LaunchReply,
    Machine,
    Nothing,
    Offer,
    SshKey,
)

BASE_URL = "https://cloud.lambda.ai"
API = "/api/v1"
LAUNCH = "/instance-operations/launch"
TIMEOUT_SECONDS = 60.0  # a launch may take its time, and a lost reply costs a look-up
CONNECT_SECONDS = 10.0
TEXT_LIMIT = 400  # characters of the server's own words in an error
API_KEY = re.compile(r"[\x21-\x7e]+")  # what a header can carry
# Raised before anything of the request went out.
NOT_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)

T = TypeVar("T")


class Client:
    """One account, as the holder of an API key sees it. Can be shared by threads.

    Every method raises a LambdaError of the class that fits, and nothing else.
    """

    def __init__(
        self,
        api_key: str,
        base_url: str = BASE_URL,
        transport: httpx.BaseTransport | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        """Prepare a client; nothing is sent.

        Args:
            api_key: as the account's dashboard shows it.
            base_url: scheme, host and port, without a slash at the end.
            transport: sends the requests; by default the network, by the proxies and certificates
                that the environment names.
            timeout: seconds without a byte after which an answer counts as lost.

        Raises:
            AccessError: no header can carry the key.
        """
        if not API_KEY.fullmatch(api_key):
            raise AccessError(
                "the API key of Lambda Cloud is empty or holds blanks, line breaks or characters "
                "that no key has: copy it again from the account's page of API keys"
            )
        self._secret = api_key
        self._base_url = base_url
        self._http = httpx.Client(
            base_url=self._base_url,
            headers={"Authorization": f"Bearer {api_key}", "Accept": "application/json"},
            timeout=httpx.Timeout(timeout, connect=min(timeout, CONNECT_SECONDS)),
            follow_redirects=False,
            transport=transport,
            # The user's proxy cannot reach this machine's loopback.
            trust_env=not is_loopback(base_url),
        )

    def instance_types(self) -> dict[str, Offer]:
        return self._call("GET", "/instance-types", Envelope[dict[str, Offer]])

    def instances(self) -> list[Machine]:
        """Return the instances of the account; one that is terminated is soon left out."""
        return self._call("GET", "/instances", Envelope[list[Machine]])

    def instance(self, id_: str) -> Machine:
        return self._call("GET", f"/instances/{_segment(id_)}", Envelope[Machine])

    def launch(self, request: Mapping[str, Any]) -> str:
        """Launch one instance by a request with the API's own names; return its id.

        After a ServerError or a LostReplyError there may be an instance anyway.
        """
        launched = self._call("POST", LAUNCH, Envelope[LaunchReply], request)
        return launched.instance_ids[0]

    def terminate(self, id_: str) -> None:
        """Begin to end an instance; it counts as gone once the API no longer knows it."""
        path, body = "/instance-operations/terminate", {"instance_ids": [id_]}
        self._call("POST", path, Envelope[Nothing], body)

    def rename(self, id_: str, name: str) -> None:
        """Give an instance another name, of at most 64 characters."""
        self._call("POST", f"/instances/{_segment(id_)}", Envelope[Nothing], {"name": name})

    def ssh_keys(self) -> list[SshKey]:
        return self._call("GET", "/ssh-keys", Envelope[list[SshKey]])

    def add_ssh_key(self, name: str, public_key: str) -> SshKey:
        body = {"name": name, "public_key": public_key}
        return self._call("POST", "/ssh-keys", Envelope[SshKey], body)

    def delete_ssh_key(self, id_: str) -> None:
        """Delete an SSH key. The API documents no NotFoundError here, but invalid parameters."""
        self._call("DELETE", f"/ssh-keys/{_segment(id_)}", Envelope[Nothing])

    def file_systems(self) -> list[FileSystem]:
        return self._call("GET", "/file-systems", Envelope[list[FileSystem]])

    def create_file_system(self, name: str, region: str) -> FileSystem:
        """Make a file system; the name has at most 60 characters."""
        body = {"name": name, "region": region}
        return self._call("POST", "/filesystems", Envelope[FileSystem], body)

    def delete_file_system(self, id_: str) -> None:
        """Delete a file system with all that is in it."""
        self._call("DELETE", f"/filesystems/{_segment(id_)}", Envelope[Nothing])

    def firewall_rulesets(self) -> list[FirewallRuleset]:
        """Return the account's firewall rulesets, without the global one."""
        return self._call("GET", "/firewall-rulesets", Envelope[list[FirewallRuleset]])

    def create_firewall_ruleset(
        self, name: str, region: str, rules: Sequence[FirewallRule]
    ) -> FirewallRuleset:
        body = {"name": name, "region": region, "rules": _encoded(rules)}
        return self._call("POST", "/firewall-rulesets", Envelope[FirewallRuleset], body)

    def update_firewall_ruleset(self, id_: str, rules: Sequence[FirewallRule], name: str) -> None:
        """Replace all rules and the name of a firewall ruleset."""
        path, body = f"/firewall-rulesets/{_segment(id_)}", {"name": name, "rules": _encoded(rules)}
        self._call("PATCH", path, Envelope[Nothing], body)

    def delete_firewall_ruleset(self, id_: str) -> None:
        """Delete a firewall ruleset that no instance uses."""
        self._call("DELETE", f"/firewall-rulesets/{_segment(id_)}", Envelope[Nothing])

    def _call(
        self,
        method: str,
        path: str,
        form: type[Envelope[T]],
        body: Mapping[str, Any] | None = None,
    ) -> T:
        what = f"{method} {self._base_url}{API}{path}"
        try:
            response = self._http.request(method, f"{API}{path}", json=body)
        except NOT_SENT as error:
            raise UnreachableError(
                f"{what}: no connection ({self._clean(str(error))}). Look at this machine's "
                "network and proxy, then try again"
            ) from error
        except httpx.DecodingError as error:
            raise ServerError(
                f"{what}: the answer's encoding is broken. Try again later"
            ) from error
        except httpx.HTTPError as error:
            cause = self._clean(str(error)) or type(error).__name__
            advice = (
                "Try again later"
                if method == "GET"
                else "It may have been done all the same: look before you repeat it"
            )
            raise LostReplyError(f"{what}: the answer was lost ({cause}). {advice}") from error
        if response.status_code != 200:
            raise self._refusal(what, response)
        try:
            return form.model_validate_json(response.content).data
        except ValidationError as error:
            # Its own text repeats the answer, in which a server may repeat the key.
            fault = error.errors(include_url=False, include_input=False)[0]
            place = " ".join(map(str, (*fault["loc"], fault["msg"])))
            raise ServerError(
                f"{what}: status 200 with an answer that is not of the API ({self._clean(place)}): "
                f"{self._clean(response.text) or 'nothing'}. Look whether something stands between "
                "this machine and the API, then try again",
                status=200,
            ) from None

    def _refusal(self, what: str, response: httpx.Response) -> LambdaError:
        """Return the error of an answer other than success."""
        status = response.status_code
        if 300 <= status < 400:
            return self._redirection(what, response)
        code, message, suggestion = map(self._clean, _problem(response))
        words = f"{message} {suggestion}".strip()
        error = error_class(status, code)(
            f"{what}: {f'{status} {code}'.rstrip()}: {words or self._clean(response.text)}",
            status=status,
            code=code,
        )
        if isinstance(error, RateLimitedError):
            error.retry_after = _retry_after(response.headers.get("Retry-After", ""))
        return error

    def _redirection(self, what: str, response: httpx.Response) -> LambdaError:
        """Return the error of a redirect, which is not followed."""
        try:
            target = urlsplit(str(response.url.join(response.headers.get("Location", ""))))
        except (httpx.InvalidURL, ValueError):
            target = urlsplit("")
        host = self._clean(f"{target.scheme}://{target.netloc.rpartition('@')[2]}")
        return LambdaError(
            f"{what}: {response.status_code}, a redirect to {host}, not followed, since it would "
            f"turn a POST into a GET. If that is Lambda's, set LAMBDA_API_URL={host}",
            status=response.status_code,
        )

    def _clean(self, text: str) -> str:
        """Return the server's words for an error: one printable line, not long, without the key."""
        words = " ".join(text.replace(self._secret, "***").split())
        line = "".join(each for each in words if each.isprintable())
        return line if len(line) <= TEXT_LIMIT else f"{line[:TEXT_LIMIT]}…"


def is_loopback(url: str) -> bool:
    """Return whether a URL names this machine's loopback."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _segment(id_: str) -> str:
    if not re.fullmatch(r"[\w-]+", id_, re.ASCII):
        raise LambdaError(
            f"{id_!r} is not an id of Lambda Cloud: ids have letters, digits, _ and - only"
        )
    return id_


def _encoded(rules: Sequence[FirewallRule]) -> list[dict[str, Any]]:
    return [rule.model_dump(exclude_none=True) for rule in rules]


def _problem(response: httpx.Response) -> list[str]:
    """Return code, message and suggestion of a refusal, "" for missing ones."""
    try:
        error = response.json()["error"]
        texts = [error.get(key) for key in ("code", "message", "suggestion")]
    # RecursionError: JSON that is nested too deeply.
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return ["", "", ""]
    return [text if isinstance(text, str) else "" for text in texts]


def _retry_after(header: str) -> float | None:
    """Return the seconds that a refusal asks to wait, None if it asks for nothing."""
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(header).timestamp() - time.time()
        except (ValueError, TypeError):
            return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None
