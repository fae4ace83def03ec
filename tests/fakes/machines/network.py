"""The network of a set of machines: a bridge, and addresses as a cloud gives them.

A machine has one interface, with its private address. Its public one is known only outside, where
it is translated one to one: nothing in the machine can bind to it, as on a rented one. Machines
reach each other by both; this machine reaches them by the public one only.
"""

import contextlib
import fcntl
import ipaddress
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LINKS = Path("/sys/class/net")
COUNT = 256
FORWARD = Path("/proc/sys/net/ipv4/ip_forward")


@dataclass(frozen=True)
class Network:
    """One bridge, by its number (0 to 255).

    All its parts are named by the number, so others can remove a killed process's leftovers.
    """

    number: int

    @property
    def bridge(self) -> str:
        return f"tym{self.number}"

    @property
    def link_prefix(self) -> str:
        return f"{self.bridge}m"

    @property
    def public(self) -> str:
        return f"10.77.{self.number}"

    @property
    def private(self) -> str:
        return f"10.78.{self.number}"

    @property
    def gateway(self) -> str:
        return f"{self.private}.1"

    def exists(self) -> bool:
        return (LINKS / self.bridge).exists()

    def make(self) -> None:
        """Make the bridge, and its routes to everything else."""
        # With an address of its own: otherwise it takes one of its cables', another whenever one
        # is plugged in, and the machines go on sending to the last one.
        mac = f"02:74:79:6d:00:{self.number:02x}"
        ip("link", "add", self.bridge, "mtu", _mtu(), "address", mac, "type", "bridge")
        ip("address", "add", f"{self.gateway}/24", "dev", self.bridge)
        ip("address", "add", f"{self.public}.1/32", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")
        ip(*f"route add {self.public}.0/24 dev {self.bridge} src {self.public}.1".split())
        for rule in self._rules():
            _iptables("-I", *rule)
        # Stays on, as after a Docker Engine: another may have come to need it meanwhile.
        FORWARD.write_text("1")

    def remove(self) -> None:
        """Remove all existing parts of it."""
        for rule in self._rules():
            while _iptables("-D", *rule, check=False) == 0:
                pass
        for link in (*self.links(), self.bridge):
            if (LINKS / link).exists():
                ip("link", "delete", link)

    def links(self) -> list[str]:
        """Return the outside names of the machines' cables."""
        return [path.name for path in LINKS.glob(f"{self.link_prefix}*")]

    def connect(self, host: int, process: int) -> None:
        """Give the network namespace of a process an interface `eth0`."""
        link, mtu = self.link(host), _mtu()
        peer = f"peer name eth0 mtu {mtu} netns {process}"
        ip("link", "add", link, "mtu", mtu, "type", "veth", *peer.split())
        ip("link", "set", link, "master", self.bridge, "up")

    def link(self, host: int) -> str:
        """Return the outside name of a machine's cable."""
        return f"{self.link_prefix}{host}"

    def _rules(self) -> list[list[str]]:
        public, private, bridge = f"{self.public}.0/24", f"{self.private}.0/24", self.bridge
        to_private = f"-d {public} -j NETMAP --to {private}"
        new, translated = "-m conntrack --ctstate NEW", "-m conntrack --ctstate DNAT"
        return [
            line.split()
            for line in (
                f"PREROUTING -t nat {to_private}",
                f"OUTPUT -t nat {to_private}",
                # A neighbour called by its public address answers to a public one, or the answer
                # would not pass the place where it is translated back.
                f"POSTROUTING -t nat -s {private} -o {bridge} {translated} -j NETMAP --to {public}",
                f"POSTROUTING -t nat -s {private} ! -o {bridge} -j MASQUERADE",
                f"FORWARD -i {bridge} -j ACCEPT",
                f"FORWARD -o {bridge} -j ACCEPT",
                f"OUTPUT -d {private} {new} -m conntrack ! --ctstate DNAT -j REJECT",
            )
        ]


def ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def taken() -> list[ipaddress.IPv4Network]:
    """Return the networks to which this machine has routes."""
    routes = json.loads(ip("-json", "-4", "route", "show"))
    return [ipaddress.IPv4Network(each["dst"]) for each in routes if each["dst"] != "default"]


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Let one process at a time claim a network, or remove leftovers of another."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _iptables(*arguments: str, check: bool = True) -> int:
    """Run iptables, which changes its tables one after the other."""
    done = subprocess.run(
        ["iptables", "--wait", *arguments], capture_output=True, text=True, check=False
    )
    if check and done.returncode:
        raise OSError(f"iptables {' '.join(arguments)}: {done.stderr.strip()}")
    return done.returncode


def _mtu() -> str:
    """Return the packet size of the way out: larger packets would be lost there."""
    routes = json.loads(ip("-json", "route", "show", "default"))
    return (LINKS / routes[0]["dev"] / "mtu").read_text().strip() if routes else "1500"
