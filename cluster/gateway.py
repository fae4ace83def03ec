"""The gateway: the only way from other machines to the services, and who may use it.

HAProxy listens on the same port numbers as the services behind it, takes connections from the
allowed networks only, and asks for a password where the service itself asks for none. It encrypts
nothing.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

import pulumi

from cluster.descriptor import Component, Descriptor, Limit, Stack
from cluster.secret import PASSWORD_BYTES, Secret
from cluster.service import HealthCheck, Port, Probe, Runtime, Service

SERVICE = "gateway"
# renovate: datasource=docker depName=haproxy
IMAGE = "haproxy:3.4.4"  # 3.4 has long-term support
USER = "trainyard"
HEALTH_PORT = 8404  # or the next that no route takes
HEALTH_PATH = "/health"
CONFIG_FILE = "haproxy.cfg"
# The password is drawn at random, too long to be guessed from its hash: a cost that slows guessing
# down would only slow down requests.
BCRYPT_COST = 4
# Each route has its own share: a client that fills one up leaves the others open.
ROUTE_CONNECTIONS = 400
ADDRESS_CONNECTIONS = 200  # open ones of an address, which a course may share
HEALTH_CONNECTIONS = 10
HEADER_TIME = "10s"  # for a request's header to come in
SOURCES = 65536  # addresses that are counted at one time
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class Route:
    """A service that others reach.

    Attributes:
        port: its TCP port, and the gateway's.
        setting: configuration key that changes the port.
        password: whether the gateway asks for one, which makes it an HTTP proxy.
    """

    service: str
    port: int
    setting: str
    password: bool = False


class Gateway(Component):
    """The gateway to all published ports of a stack."""

    def declare(self, stack: Stack) -> None:
        runtime, settings = stack.runtime, stack.settings
        routes = [
            Route(
                service=service.name,
                port=stack.port(port.key),
                setting=port.key,
                password=port.password,
            )
            for service in stack.services
            for port in service.ports
            if port.published
        ]
        # This machine as well: its own users connect to the addresses in the outputs.
        cidrs = [*settings.allowed_cidrs, f"{settings.publish_address}/32"]
        drawn = Secret(f"{self.name}-password", PASSWORD_BYTES, self.child)
        self.password = pulumi.Output.secret(drawn.value)
        config = self.password.apply(
            lambda value: configuration(runtime, routes, cidrs, password_hash(value))
        )
        runtime.place(
            Service(
                name=SERVICE,
                program="gateway",
                arguments=["-f", runtime.file(SERVICE, CONFIG_FILE)],
                secrets={CONFIG_FILE: config},
                ports=[
                    Port(number=route.port, setting=route.setting, public=True) for route in routes
                ],
                health=[HealthCheck(port=health_port(routes), path=HEALTH_PATH)],
                probe=Probe.BASH,
            ),
            self.child,
        )
        # The password that it asks for in the place of services.
        stack.outputs |= {
            endpoint.login: self.password
            for service in stack.services
            if any(port.password for port in service.ports)
            for endpoint in service.endpoints
        }


def configuration(
    runtime: Runtime, routes: Sequence[Route], cidrs: Sequence[str], password: str
) -> str:
    """Return HAProxy's configuration: which networks may connect, and to what.

    The password is a hash, as crypt(3) writes it.
    """
    fixed = CONFIG.format(
        max_connections=ROUTE_CONNECTIONS * len(routes) + HEALTH_CONNECTIONS,
        health_connections=HEALTH_CONNECTIONS,
        sources=SOURCES,
        header_time=HEADER_TIME,
        loopback=LOOPBACK,
        health_port=health_port(routes),
        health_path=HEALTH_PATH,
        user=USER,
        password=password,
    )
    return "\n".join([fixed, *(_route(runtime, route, cidrs) for route in routes)])


def health_port(routes: Sequence[Route]) -> int:
    """Return the port of the health check, which is open on the gateway's own loopback only."""
    taken = {route.port for route in routes}
    return next(port for port in count(HEALTH_PORT) if port not in taken)


def password_hash(password: str) -> str:
    """Return the bcrypt hash of a password, the same one each time.

    HAProxy asks the C library's crypt(3); Debian's, which the official image has too, knows bcrypt.
    The salt follows from the password, so that an update does not change the file: a random salt
    protects only against tables of hashes, and no table has all passwords of 20 random bytes.
    """
    # Imported here: elsewhere it would slow down an `up` that changes nothing.
    from Crypto.Protocol.KDF import bcrypt  # noqa: PLC0415

    salt = hashlib.sha256(b"trainyard gateway" + password.encode()).digest()[:16]
    return bcrypt(password, BCRYPT_COST, salt).decode()


# A recreated container has another address, so names are looked up all the time, and a name that
# is not there yet does not prevent the start. A connection may be quiet for long (a log that is
# followed, a notebook's websocket): keep-alives find out whether the other end is still there.
CONFIG = """\
global
    log stdout format raw daemon info
    maxconn {max_connections}
    hard-stop-after 3s

defaults
    log global
    mode tcp
    option dontlognull
    option clitcpka
    clitcpka-idle 60s
    clitcpka-intvl 30s
    clitcpka-cnt 4
    option srvtcpka
    srvtcpka-idle 60s
    srvtcpka-intvl 30s
    srvtcpka-cnt 4
    timeout connect 5s
    timeout client 1m
    timeout server 5m
    timeout http-request {header_time}
    timeout http-keep-alive 1m
    timeout tunnel 24h
    default-server init-addr none resolvers names resolve-prefer ipv4

resolvers names
    parse-resolv-conf
    resolve_retries 2
    timeout resolve 1s
    timeout retry 1s
    hold valid 1s
    hold obsolete 1s

userlist users
    user {user} password {password}

# Open connections of each address, on all routes together.
backend sources
    stick-table type ip size {sources} expire 10m store conn_cur

frontend health
    mode http
    maxconn {health_connections}
    bind {loopback}:{health_port}
    monitor-uri {health_path}
"""


def _route(runtime: Runtime, route: Route, cidrs: Sequence[str]) -> str:
    mode = "http" if route.password else "tcp"
    lines = [
        f"listen {route.service}-{route.port}",
        f"    mode {mode}",
        f"    option {mode}log",
        f"    maxconn {ROUTE_CONNECTIONS}",
        f"    bind {runtime.listen_address(SERVICE)}:{route.port}",
        *(f"    acl allowed src {cidr}" for cidr in cidrs),
        "    tcp-request connection reject unless allowed",
        "    tcp-request connection track-sc0 src table sources",
        f"    tcp-request connection reject if {{ sc0_conn_cur gt {ADDRESS_CONNECTIONS} }}",
    ]
    if route.password:
        lines += [
            "    http-request auth realm Trainyard unless { http_auth(users) }",
            # The service does not need it, and might log it.
            "    http-request del-header Authorization",
        ]
    else:
        # All services speak HTTP. A client that sends no whole header, or one byte after the
        # other, gets no connection to the service.
        lines += [
            f"    tcp-request inspect-delay {HEADER_TIME}",
            "    tcp-request content reject unless HTTP",
        ]
    address = runtime.address(route.service, route.port)
    return "\n".join([*lines, f"    server {route.service} {address}", ""])


DESCRIPTOR = Descriptor(
    program=SERVICE,
    declare=partial(Gateway, "gateway"),
    image=IMAGE,
    limit=Limit(memory_mib=512, processes=256),
    # Of rented machines allowedCidrs is a setting of the firewall.
    wanted=lambda settings: bool(settings.publish_address),
)
