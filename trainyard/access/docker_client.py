"""The Docker Engine that containers run on: reached as Docker's own client reaches it.

DOCKER_HOST names it, else it is the socket of this machine; pulumi-docker reads the same. That of
another machine is reached through SSH, which forwards its socket. The SDK is imported when an
Engine is used: that takes 0.1 s, which a stack of processes saves.
"""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from trainyard.access import ssh_run
from trainyard.access.ssh import PORT, Connection

if TYPE_CHECKING:
    import docker

HOST = "DOCKER_HOST"
SOCKET = Path("/var/run/docker.sock")
MIN_API = (1, 41)  # Engine 20.10: the oldest whose answers were compared
MIN_ENGINE = "20.10"
# Schemes that need TLS, with both ends checked.
NETWORK_SCHEMES = ("tcp", "http", "https")
# Of the program ssh, which pulumi-docker runs: one host key counts, and no settings of the user's.
KNOWN_HOST = "KnownHostsCommand=/bin/echo %H "
SSH_OPTIONS = (
    *("-F", "none", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"),
    *("-o", "UserKnownHostsFile=none", "-o", "GlobalKnownHostsFile=none"),
)
KEY_OPTION = "-i"
LOOK = f"[ -S {SOCKET} ] || echo absent; [ -w {SOCKET} ] || echo closed"
LOOK_SECONDS = 30


class EngineUnavailableError(Exception):
    """No Docker Engine that could be used; the message ends with what to do."""


def connect(timeout: int = 60, machine: Connection | None = None) -> docker.DockerClient:
    """Return a client of the Engine.

    Args:
        timeout: seconds that the Engine may be silent.
        machine: the other machine that it is on; None for the Engine of DOCKER_HOST, or this one's.

    Raises:
        EngineUnavailableError: it does not answer, is too old, or may not be used.
        SshError: the other machine cannot be reached.
    """
    import docker  # noqa: PLC0415
    from docker.errors import DockerException  # noqa: PLC0415

    if machine is None:
        refuse_open_host()
        make = partial(docker.from_env, use_ssh_client=True)
    else:
        base = f"unix://{ssh_run.socket(machine, str(SOCKET))}"
        make = partial(docker.DockerClient, base_url=base)
    try:
        client = make(timeout=timeout)
    except (DockerException, OSError) as error:  # OSError: also a request without an answer
        advice = _advice_there(machine) if machine else _advice(error)
        raise EngineUnavailableError(advice) from None
    version = str(client.api.api_version)  # the Engine's own
    if tuple(int(part) for part in version.split(".")) < MIN_API:
        raise EngineUnavailableError(
            f"the Docker Engine at {machine.name if machine else place()} speaks API {version}; "
            f"{MIN_API[0]}.{MIN_API[1]} (Engine {MIN_ENGINE}) or later is needed: get a newer one"
        )
    return client


def ssh_host(user: str, host: str, port: int) -> str:
    """Return the DOCKER_HOST of another machine's Engine."""
    return f"ssh://{user}@{f'[{host}]' if ':' in host else host}:{int(port)}"


def ssh_options(host_key: str, key_file: str) -> list[str]:
    """Return the options with which the program ssh logs in there.

    Args:
        host_key: public host key, as Connection has it.
        key_file: path of the private key here, "" for the SSH agent.
    """
    own = [KEY_OPTION, key_file, "-o", "IdentitiesOnly=yes"] if key_file else []
    return [*SSH_OPTIONS, "-o", KNOWN_HOST + host_key, *own]


def ssh_connection(host: str, options: Sequence[str]) -> Connection:
    """Return the connection that `ssh_host` and `ssh_options` describe.

    Raises:
        ValueError: they describe another one.
        NoKeyError: the private key's file cannot be used.
    """
    parts = urlsplit(host)
    given = [each.removeprefix(KNOWN_HOST) for each in options if each.startswith(KNOWN_HOST)]
    file = options[options.index(KEY_OPTION) + 1] if KEY_OPTION in options else ""
    if len(given) != 1 or [*options] != ssh_options(given[0], file) or not parts.username:
        raise ValueError(f"{host} with the options {shlex.join(options)}")
    return Connection(
        host=parts.hostname or "",
        user=parts.username,
        host_key=given[0],
        port=parts.port or PORT,
        private_key=ssh_run.read_key(Path(file).expanduser()) if file else "",
    )


def refuse_open_host() -> None:
    """Refuse an Engine that is reached over a network unencrypted or unchecked.

    Raises:
        EngineUnavailableError: DOCKER_HOST names such an Engine.
    """
    host = os.environ.get(HOST, "")
    scheme = host.partition("://")[0] if "://" in host else "tcp"
    if not host or scheme not in NETWORK_SCHEMES or os.environ.get("DOCKER_TLS_VERIFY"):
        return
    raise EngineUnavailableError(
        f"DOCKER_HOST = {host!r} without TLS: anyone who reaches that port is root there, and "
        "secrets would pass in the clear. Use DOCKER_HOST=ssh://user@host, or set "
        "DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH"
    )


def place() -> str:
    """Return the Engine's address."""
    return os.environ.get(HOST) or f"unix://{SOCKET}"


def pull(api: docker.APIClient, reference: str) -> str:
    """Have the Engine fetch an image, name:tag or name@digest, from its registry.

    Returns:
        The error; "" when the image is there.
    """
    from docker.errors import DockerException  # noqa: PLC0415
    from docker.utils import parse_repository_tag  # noqa: PLC0415
    from requests import RequestException  # noqa: PLC0415
    from urllib3.exceptions import HTTPError  # noqa: PLC0415

    repository, tag = parse_repository_tag(reference)
    try:
        lines = api.pull(repository, tag or "latest", stream=True, decode=True)
        return next((str(line["error"]) for line in lines if "error" in line), "")
    except DockerException as error:
        return str(getattr(error, "explanation", None) or error)
    except (RequestException, HTTPError) as error:  # the second where an answer had begun
        return f"the Engine broke off: {error}"


def _advice(error: Exception) -> str:
    cause = _cause(error)
    if cause is not None and cause.errno in (errno.EACCES, errno.EPERM):
        return (
            f"the Docker Engine at {place()} may not be used by this user; join the group docker "
            "(sudo usermod -aG docker $USER, then log in again)"
        )
    return (
        f"no Docker Engine answers at {place()} ({cause.strerror if cause else error}); start it "
        "(sudo systemctl start docker) or point DOCKER_HOST at another one"
    )


def _advice_there(machine: Connection) -> str:
    """Return why the Engine of another machine does not answer."""
    found = ssh_run.run(machine, LOOK, seconds=LOOK_SECONDS).split()
    if "absent" in found:
        return (
            f"{machine.name} has no Docker Engine ({SOCKET} is missing): install and start one "
            "there (sudo apt install docker.io)"
        )
    if "closed" in found:
        return (
            f"the Docker Engine of {machine.name} may not be used by this user: run there "
            f"`sudo usermod -aG docker {machine.user}`"
        )
    return (
        f"the Docker Engine of {machine.name} does not answer: look there whether it runs (sudo "
        "systemctl status docker), and whether sshd has AllowStreamLocalForwarding"
    )


def _cause(error: BaseException | None) -> OSError | None:
    """Return the system's own error: libraries wrap it several times, each in its own words."""
    if error is None or (isinstance(error, OSError) and error.strerror):
        return error
    return _cause(error.__cause__ or error.__context__)
