"""ray_config.yaml: the GPU box that trains, and how it is reached.

    driver: {private_key_file: ~/.ssh/id_ed25519}
    ray_head: {hostname_or_ip_address: 192.168.2.4, client_server_port: 10001}
    worker: {user: ubuntu, hostname_or_ip_address: 192.168.2.4, base_dir: ~/training}

All faults of a file are reported at once.
"""

import difflib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard.access import settings_file
from trainyard.client.errors import ClientError

CLIENT_PORT = 10001  # Ray's default of its client server
SSH_PORT = 22
PLATFORM = "linux"
HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}|[0-9a-fA-F:]{2,39}")
USER = re.compile(r"[A-Za-z_][\w.@-]{0,63}")
REMOTE_PATH = re.compile(r"(~|/)[^\x00-\x1f]{0,500}")
HOST_KEY = re.compile(r"(ssh|ecdsa|sk)-[\w@.-]+ [A-Za-z0-9+/]+={0,2}")
HINT = "docs/box.md has an example"
KEYS = {
    "driver": ("user", "private_key_file"),
    "ray_head": ("hostname_or_ip_address", "client_server_port"),
    "worker": (
        *("user", "hostname_or_ip_address", "ssh_port", "platform", "base_dir"),
        *("setup_commands", "host_key"),
    ),
}


@dataclass(frozen=True, kw_only=True)
class RayConfig:
    """A box, as ray_config.yaml describes it."""

    local_user: str  # with the key and the results in the home here; "" for any user
    key_file: Path | None  # private key that logs in; None leaves it to the SSH agent
    head: str  # host of Ray's head, as the box knows it
    client_port: int  # of Ray's client server there
    user: str  # who logs in to the box
    host: str  # the box
    ssh_port: int  # of its SSH server
    base_dir: str  # folder of the box that the setup commands run in; may begin with `~`
    setup_commands: tuple[str, ...]  # for bash, run there before a training
    host_key: str  # `ssh-ed25519 AAAA…`; "" for the key in ~/.ssh/known_hosts


def read_ray_config(file: Path) -> RayConfig:
    """Reads and checks a file.

    Raises:
        ClientError: naming every key that is missing, unknown or wrong.
    """
    try:
        document = settings_file.read(file)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ClientError(f"cannot read {file} ({reason}); `train init` writes one") from None
    values = _Values(document)
    key_file = values.text("driver", "private_key_file", default="")
    found = RayConfig(
        local_user=values.text("driver", "user", USER, "a user name", default=""),
        key_file=Path(key_file).expanduser() if key_file else None,
        head=values.text("ray_head", "hostname_or_ip_address", HOST, "a host name or address"),
        client_port=values.port("ray_head", "client_server_port", CLIENT_PORT),
        user=values.text("worker", "user", USER, "a user name"),
        host=values.text("worker", "hostname_or_ip_address", HOST, "a host name or address"),
        ssh_port=values.port("worker", "ssh_port", SSH_PORT),
        base_dir=values.text("worker", "base_dir", REMOTE_PATH, "a path with ~ or / in front"),
        setup_commands=values.commands("worker", "setup_commands"),
        host_key=values.text("worker", "host_key", HOST_KEY, "`ssh-ed25519 AAAA…`", default=""),
    )
    platform = values.text("worker", "platform", default=PLATFORM)
    if platform != PLATFORM:
        values.fault(f"worker.platform is {platform!r}, only 'linux' works: use WSL 2 on Windows")
    if values.faults:
        raise ClientError(f"{file}: {'; '.join(values.faults)}; {HINT}")
    return found


class _Values:
    def __init__(self, document: Any) -> None:
        self.faults: list[str] = []
        self._sections: dict[str, dict[str, Any]] = {}
        if not isinstance(document, dict):
            self.fault(f"is not a mapping of {', '.join(KEYS)}")
            document = {}
        self._unknown(document, tuple(KEYS), "")
        for section, keys in KEYS.items():
            given = document.get(section) or {}
            if not isinstance(given, dict):
                self.fault(f"{section} is {given!r:.40}, not a mapping of {', '.join(keys)}")
                given = {}
            self._unknown(given, keys, f"{section}.")
            self._sections[section] = given

    def fault(self, text: str) -> None:
        self.faults.append(text)

    def text(
        self,
        section: str,
        key: str,
        pattern: re.Pattern[str] | None = None,
        bound: str = "text",
        *,
        default: str | None = None,
    ) -> str:
        value = self._sections[section].get(key, default)
        if value is None:
            self.fault(f"{section}.{key} is missing: set it to {bound}")
        elif not isinstance(value, str) or (value and pattern and not pattern.fullmatch(value)):
            self.fault(f"{section}.{key} is {value!r:.80}, not {bound}")
        elif not value and default is None:
            self.fault(f"{section}.{key} is empty: set it to {bound}")
        else:
            return value
        return ""

    def port(self, section: str, key: str, default: int) -> int:
        value = self._sections[section].get(key, default)
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 65535:
            return value
        self.fault(f"{section}.{key} is {value!r:.40}, not a port from 1 to 65535")
        return default

    def commands(self, section: str, key: str) -> tuple[str, ...]:
        value = self._sections[section].get(key) or []
        if isinstance(value, list) and all(isinstance(each, str) and each for each in value):
            return tuple(value)
        self.fault(f"{section}.{key} is {value!r:.40}, not a list of commands")
        return ()

    def _unknown(self, given: dict[Any, Any], known: tuple[str, ...], prefix: str) -> None:
        for key in given:
            if key not in known:
                near = difflib.get_close_matches(str(key), known, n=1)
                action = f"did you mean {near[0]}?" if near else f"use {', '.join(known)}"
                self.fault(f"{prefix}{key} is unknown: {action}")
