"""Asks Ray's dashboard of a stack, with the token from the stack's outputs."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import urllib3

from trainyard.access import bounded, kubectl, outputs
from trainyard.access.ssh import Connection, SshError
from trainyard.access.ssh_run import forwarded

SECONDS = 10.0
HTTP = 80  # its default port


class AskError(Exception):
    """The dashboard gave no answer; the message says why."""


# Opens a port of a host there as one of this machine; None where addresses are this machine's.
Way = Callable[[str, int], AbstractContextManager[str]] | None


def ask_dashboard(known: Mapping[str, Any], way: Way, path: str) -> Any:
    """Return the dashboard's answer to a path with its query, from JSON.

    The stack's outputs have secrets in the clear. The way is None for this machine.

    Raises:
        AskError: it cannot be asked.
    """
    with _reached(str(known[outputs.DASHBOARD_URL]), way) as url:
        try:
            reply = urllib3.PoolManager(retries=False).request(
                "GET",
                f"{url}{path}",
                headers={"Authorization": f"Bearer {known.get(outputs.RAY_TOKEN, '')}"},
                timeout=urllib3.Timeout(SECONDS),
                preload_content=False,
            )
            content = bounded.content(reply)
        except bounded.TooLongError as error:
            raise AskError(
                f"Ray's dashboard answers {path.partition('?')[0]} with {error}"
            ) from None
        except urllib3.exceptions.HTTPError as error:
            raise AskError(
                f"Ray's dashboard {known[outputs.DASHBOARD_URL]} does not answer "
                f"({type(error).__name__})"
            ) from None
    if reply.status != 200:
        raise AskError(f"Ray's dashboard answers with status {reply.status}")
    try:
        return json.loads(content)
    except ValueError as error:
        raise AskError(f"Ray's dashboard gives no JSON ({error!r})") from None


def way(known: Mapping[str, Any], hosts: Iterable[Any]) -> Way:
    """Return the way to the place of the outputs' addresses, None for this machine.

    `hosts` are the properties `host` of the stack's resources.
    """
    if place := known.get(outputs.KUBERNETES):
        port = str(urlsplit(str(known[outputs.DASHBOARD_URL])).port)
        cluster, service = kubectl.Cluster.of(place), str(place["services"][port])
        return lambda _host, port: kubectl.forwarded(cluster, service, port)
    if not (ssh := known.get(outputs.SSH)):
        return None
    user = ssh["host"], ssh["user"]
    known_hosts = (host for host in hosts if isinstance(host, Mapping))
    found = (each for each in known_hosts if (each["host"], each["user"]) == user)
    return next((partial(forwarded, Connection.of(each)) for each in found), None)


@contextmanager
def _reached(dashboard: str, way: Way) -> Iterator[str]:
    """Yield a URL of the dashboard that this machine reaches."""
    place = urlsplit(dashboard)
    if way is None:
        yield f"{place.scheme}://{place.netloc}"
        return
    try:
        with way(str(place.hostname), place.port or HTTP) as here:
            yield f"{place.scheme}://{here}"
    except (SshError, kubectl.KubectlError) as error:
        raise AskError(f"Ray's dashboard cannot be reached: {error}") from None
