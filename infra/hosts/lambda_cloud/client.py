"""Lambda Cloud's API, version 1: one method for each endpoint, and no policy.

Nothing is repeated, paced or looked up here: a transport may do that (see `pacing`). The API key
goes into one header and nowhere else.
"""

import ipaddress
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from infra.hosts.lambda_cloud import decoding, replies
from infra.hosts.lambda_cloud.errors import (
    InvalidApiKeyError,
    InvalidParametersError,
    LambdaError,
    LostReplyError,
    RateLimitedError,
    RedirectedError,
    ServerError,
    UnreachableError,
    error_class,
)
from infra.hosts.lambda_cloud.model import (
    FileSystem,
    FirewallRule,
    FirewallRuleset,
    Image,
    LaunchRequest,
    Machine,
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
# Keys of httpx's extensions, which pass data outside HTTP between client and transport:
DECODE = "decode"  # of a request: decodes the `data` of a success
GIVEN_UP = "given_up"  # of a refusal: how long the transport has waited before it gave up

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
            base_url: scheme, host and port.
            transport: sends the requests; by default a Network.
            timeout: seconds without a byte after which an answer counts as lost.

        Raises:
            InvalidApiKeyError: no header can carry the key.
        """
        if not API_KEY.fullmatch(api_key):
            raise InvalidApiKeyError(
                "the API key of Lambda Cloud is empty or holds blanks, line breaks or characters "
                "that no key has: copy it again from the account's page of API keys"
            )
        self._secret = api_key
        self._base_url = base_url.rstrip("/")
        self._http = httpx.Client(
            base_url=self._base_url,
            headers={"Authorization": f"Bearer {api_key}", "Accept": "application/json"},
            timeout=httpx.Timeout(timeout, connect=min(timeout, CONNECT_SECONDS)),
            follow_redirects=False,
            transport=Network(self._base_url) if transport is None else transport,
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def instance_types(self) -> dict[str, Offer]:
        """Return all types of instance by name."""
        return self._call("GET", "/instance-types", decoding.offers)

    def instances(self) -> list[Machine]:
        """Return the instances of the account; one that is terminated is soon left out."""
        return self._call("GET", "/instances", decoding.each(decoding.machine))

    def instance(self, id_: str) -> Machine:
        """Return one instance."""
        return self._call("GET", f"/instances/{_segment(id_)}", decoding.machine)

    def launch(self, request: LaunchRequest) -> str:
        """Launch one instance and return its id.

        After a ServerError or a LostReplyError there may be an instance anyway.
        """
        body: dict[str, Any] = {
            "region_name": request.region,
            "instance_type_name": request.instance_type,
            "ssh_key_names": [request.ssh_key_name],
            "name": request.name,
            "hostname": request.hostname,
            "user_data": request.user_data,
            "tags": [{"key": key, "value": value} for key, value in request.tags.items()],
            "file_system_mounts": [
                {"mount_point": path, "file_system_id": id_}
                for path, id_ in request.file_system_mounts.items()
            ],
            "firewall_rulesets": [{"id": id_} for id_ in request.firewall_ruleset_ids],
        }
        given = {key: value for key, value in body.items() if value}
        return self._call("POST", LAUNCH, decoding.launched, given)

    def terminate(self, ids: Sequence[str]) -> list[Machine]:
        """Begin to end instances; they count as gone once the API no longer knows them."""
        return self._call(
            "POST",
            "/instance-operations/terminate",
            decoding.within("terminated_instances", decoding.each(decoding.machine)),
            {"instance_ids": list(ids)},
        )

    def restart(self, ids: Sequence[str]) -> list[Machine]:
        """Restart instances."""
        return self._call(
            "POST",
            "/instance-operations/restart",
            decoding.within("restarted_instances", decoding.each(decoding.machine)),
            {"instance_ids": list(ids)},
        )

    def rename(self, id_: str, name: str) -> Machine:
        """Give an instance another name, of at most 64 characters."""
        return self._call("POST", f"/instances/{_segment(id_)}", decoding.machine, {"name": name})

    def ssh_keys(self) -> list[SshKey]:
        """Return the account's SSH keys."""
        return self._call("GET", "/ssh-keys", decoding.each(decoding.ssh_key))

    def add_ssh_key(self, name: str, public_key: str | None = None) -> SshKey:
        """Add an SSH key; without a public key the API makes a pair, and hands out the private."""
        body = {"name": name} | ({} if public_key is None else {"public_key": public_key})
        return self._call("POST", "/ssh-keys", decoding.ssh_key, body)

    def delete_ssh_key(self, id_: str) -> None:
        """Delete an SSH key. The API documents no NotFoundError here, but invalid parameters."""
        self._call("DELETE", f"/ssh-keys/{_segment(id_)}", decoding.nothing)

    def file_systems(self) -> list[FileSystem]:
        """Return the account's file systems."""
        return self._call("GET", "/file-systems", decoding.each(decoding.file_system))

    def create_file_system(self, name: str, region: str) -> FileSystem:
        """Make a file system; the name has at most 60 characters."""
        return self._call(
            "POST", "/filesystems", decoding.file_system, {"name": name, "region": region}
        )

    def delete_file_system(self, id_: str) -> None:
        """Delete a file system with all that is in it."""
        self._call("DELETE", f"/filesystems/{_segment(id_)}", decoding.nothing)

    def firewall_rulesets(self) -> list[FirewallRuleset]:
        """Return the account's firewall rulesets, without the global one."""
        return self._call("GET", "/firewall-rulesets", decoding.each(decoding.firewall_ruleset))

    def firewall_ruleset(self, id_: str) -> FirewallRuleset:
        """Return one firewall ruleset."""
        return self._call("GET", f"/firewall-rulesets/{_segment(id_)}", decoding.firewall_ruleset)

    def create_firewall_ruleset(
        self, name: str, region: str, rules: Sequence[FirewallRule]
    ) -> FirewallRuleset:
        """Make a firewall ruleset."""
        body = {"name": name, "region": region, "rules": _encoded(rules)}
        return self._call("POST", "/firewall-rulesets", decoding.firewall_ruleset, body)

    def update_firewall_ruleset(
        self, id_: str, rules: Sequence[FirewallRule], name: str
    ) -> FirewallRuleset:
        """Replace all rules and the name of a firewall ruleset."""
        path = f"/firewall-rulesets/{_segment(id_)}"
        return self._call(
            "PATCH", path, decoding.firewall_ruleset, {"name": name, "rules": _encoded(rules)}
        )

    def delete_firewall_ruleset(self, id_: str) -> None:
        """Delete a firewall ruleset that no instance uses."""
        self._call("DELETE", f"/firewall-rulesets/{_segment(id_)}", decoding.nothing)

    def images(self) -> list[Image]:
        """Return the images that instances can start from."""
        return self._call("GET", "/images", decoding.each(decoding.image))

    def _call(
        self, method: str, path: str, decode: Callable[[Any], T], body: dict[str, Any] | None = None
    ) -> T:
        what = f"{method} {self._base_url}{API}{path}"
        try:
            response = self._http.request(
                method, f"{API}{path}", json=body, extensions={DECODE: decode}
            )
        except replies.NOT_SENT as error:
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
            return replies.decoded(response, decode)
        except decoding.UnexpectedError as error:
            raise ServerError(
                f"{what}: status 200 with an answer that is not of the API ({error}): "
                f"{self._clean(response.text) or 'nothing'}. Look whether something stands between "
                "this machine and the API, then try again",
                status=200,
            ) from error

    def _refusal(self, what: str, response: httpx.Response) -> LambdaError:
        """Return the error of an answer other than success."""
        status = response.status_code
        if 300 <= status < 400:
            return self._redirection(what, response)
        code, message, suggestion = map(self._clean, replies.problem(response))
        words = " ".join(text for text in (message, suggestion) if text)
        text = f"{what}: {f'{status} {code}'.rstrip()}: {words or self._clean(response.text)}"
        if GIVEN_UP in response.extensions:
            text += f". {response.extensions[GIVEN_UP]}"
        error = error_class(status, code)(
            text, status=status, code=code, message=message, suggestion=suggestion
        )
        if isinstance(error, RateLimitedError):
            error.retry_after = replies.retry_after(response)
        return error

    def _redirection(self, what: str, response: httpx.Response) -> RedirectedError:
        try:
            target = urlsplit(str(response.url.join(response.headers.get("Location", ""))))
        except (httpx.InvalidURL, ValueError):
            target = urlsplit("")
        host = self._clean(f"{target.scheme}://{target.netloc.rpartition('@')[2]}")
        return RedirectedError(
            f"{what}: {response.status_code}, a redirect to {host}, not followed, since it would "
            f"turn a POST into a GET. If that is Lambda's, set LAMBDA_API_URL={host}",
            status=response.status_code,
        )

    def _clean(self, text: str) -> str:
        """Return the server's words for an error: one line, not long, without the key."""
        line = replies.line(text.replace(self._secret, "***"))
        return line if len(line) <= TEXT_LIMIT else f"{line[:TEXT_LIMIT]}…"


class Network(httpx.BaseTransport):
    """Sends requests by the proxies and certificates that the environment names.

    httpx reads the environment only for a client without a transport: this one has such a client.
    """

    def __init__(self, base_url: str) -> None:
        """Prepare for requests to an address; nothing is sent."""
        # The user's proxy cannot reach this machine's loopback.
        self._http = httpx.Client(trust_env=not is_loopback(base_url))

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request as it is."""
        return self._http.send(request, stream=True)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


def is_loopback(url: str) -> bool:
    """Return whether a URL names this machine's loopback."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _segment(id_: str) -> str:
    """Return an id as one segment of a path."""
    if not re.fullmatch(r"[\w-]+", id_, re.ASCII):
        raise InvalidParametersError(
            f"{id_!r} is not an id of Lambda Cloud: ids have letters, digits, _ and - only"
        )
    return id_


def _encoded(rules: Sequence[FirewallRule]) -> list[dict[str, Any]]:
    return [
        {
            "protocol": rule.protocol,
            "source_network": rule.source_network,
            "description": rule.description,
        }
        | ({} if rule.port_range is None else {"port_range": list(rule.port_range)})
        for rule in rules
    ]
