"""Who may come in: HAProxy's configuration, and a real HAProxy on loopback that follows it."""

import base64
import http.client
import select
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from typing import Any

import pytest

from cluster import gateway, monitoring, ray_cluster
from cluster.gateway import Gateway, Route
from tests import ran, web
from tests.ports import free_ports
from tests.unit.cluster.conftest import stack
from tests.waiting import wait_for

DASHBOARD = Route(service="ray-head", port=8265, setting="dashboardPort")
PROMETHEUS = Route(service="prometheus", port=9090, setting="prometheusPort", password=True)
DEADLINE_SECONDS = 10
HELLO = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"

needs_haproxy = pytest.mark.skipif(
    shutil.which("haproxy") is None, reason="haproxy is not on PATH; Debian's package has it"
)


def _config(
    runtime: Any,
    password: str = "h",
    routes: Sequence[Route] = (DASHBOARD, PROMETHEUS),
    cidrs: Sequence[str] = ("192.0.2.0/24",),
) -> str:
    return gateway.configuration(runtime, routes, cidrs, password)


def _gateway(runtime: Any) -> Gateway:
    services = [ray_cluster.DESCRIPTOR, monitoring.DESCRIPTOR]
    return Gateway("gateway", stack(runtime, services=services))


def _section(config: str, name: str) -> str:
    (found,) = [part for part in config.split("\n\n") if part.startswith(name)]
    return found


def test_the_same_ports_inside_and_outside(runtime, deploy):  # F33
    deploy(lambda: _gateway(runtime).password)
    service = runtime.placed["gateway"]
    opened = [(port.number, port.setting, port.public, port.published) for port in service.ports]
    assert opened == [
        (8265, "dashboardPort", True, False),
        (8000, "servePort", True, False),
        (9090, "prometheusPort", True, False),
    ]


def test_the_password_is_a_secret_and_only_its_hash_reaches_the_gateway(runtime, deploy):  # F35 F37
    def program() -> Any:
        password = _gateway(runtime).password
        config = runtime.placed["gateway"].secrets["haproxy.cfg"]
        return {
            "password": password,
            "secret": password.is_secret(),
            "config": config,
            "hidden": config.is_secret(),
        }

    result = deploy(program)
    assert result["password"] == "value of gateway-password"
    assert result["secret"]
    assert result["hidden"]
    assert "value of" not in result["config"]
    assert gateway.password_hash("value of gateway-password") in result["config"]
    service = runtime.placed["gateway"]
    assert service.arguments == ["-f", "/run/secrets/haproxy.cfg"]
    assert "value of" not in f"{service.arguments} {service.environment} {service.files}"


def test_the_hash_is_the_same_each_time_and_of_one_password():
    assert gateway.password_hash("a" * 40) == gateway.password_hash("a" * 40)
    assert gateway.password_hash("a" * 40) != gateway.password_hash("b" * 40)


def test_every_route_takes_the_allowed_networks_only(runtime):  # F33
    config = _config(runtime, cidrs=["192.0.2.0/24", "198.51.100.7/32"])
    for name in ("ray-head-8265", "prometheus-9090"):
        route = _section(config, f"listen {name}")
        assert "acl allowed src 192.0.2.0/24" in route
        assert "acl allowed src 198.51.100.7/32" in route
        assert "tcp-request connection reject unless allowed" in route
    assert config.count("    bind ") == 3
    assert "bind 127.0.0.1:8404" in _section(config, "frontend health")


def test_only_routes_that_ask_for_it_have_a_password(runtime):
    config = _config(runtime)
    assert "http_auth" in _section(config, "listen prometheus-9090")
    assert "http_auth" not in _section(config, "listen ray-head-8265")


def test_the_health_check_evades_a_route_of_its_port(runtime):
    route = Route(service="ray-head", port=8404, setting="dashboardPort")
    assert gateway.health_port([DASHBOARD]) == 8404
    assert gateway.health_port([route]) == 8405


@needs_haproxy
@pytest.mark.parametrize("cidrs", [["192.0.2.0/24"], [f"10.0.{n}.0/24" for n in range(64)]])
@pytest.mark.parametrize("routes", [[DASHBOARD], [PROMETHEUS], [DASHBOARD, PROMETHEUS]])
def test_haproxy_accepts_the_configuration(runtime, tmp_path, routes, cidrs):
    file = tmp_path / "haproxy.cfg"
    file.write_text(_config(runtime, gateway.password_hash("secret"), routes, cidrs))
    done = ran.run(["haproxy", "-c", "-f", str(file)])
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr


@pytest.fixture
def backend() -> Iterator[int]:
    """The port of a web server that answers with the Authorization header that it was sent."""
    with web.serving(lambda asked: (200, str(asked.headers["Authorization"]).encode())) as server:
        yield server.server_port


@pytest.fixture
def serve() -> Iterator[Callable[..., int]]:
    """Start servers that send their own address to talking clients; return their port."""
    listeners: list[socket.socket] = []

    def start(address: str = "127.0.0.1", port: int = 0) -> int:
        listener = socket.create_server((address, port))
        listeners.append(listener)
        threading.Thread(target=accept, args=(listener, address.encode()), daemon=True).start()
        return int(listener.getsockname()[1])

    def accept(listener: socket.socket, greeting: bytes) -> None:
        with suppress(OSError):  # until it is closed
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=answer, args=(connection, greeting), daemon=True).start()

    def answer(connection: socket.socket, greeting: bytes) -> None:
        with connection, suppress(OSError):
            while connection.recv(1024):
                connection.sendall(greeting)

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


class Names:
    """A name server: IPv4 addresses by name; other names do not exist."""

    def __init__(self) -> None:
        self.addresses: dict[str, str] = {}
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.port: int = self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def close(self) -> None:
        self.socket.sendto(b"", ("127.0.0.1", self.port))
        self.thread.join()
        self.socket.close()

    def _serve(self) -> None:
        while True:
            query, client = self.socket.recvfrom(4096)
            if not query:
                return
            labels, end = [], 12
            while length := query[end]:
                labels.append(query[end + 1 : end + 1 + length].decode())
                end += 1 + length
            question = query[12 : end + 5]
            (kind,) = struct.unpack("!H", question[-4:-2])
            address = self.addresses.get(".".join(labels))
            answers = b""
            if address and kind == 1:
                answers = struct.pack("!HHHIH", 0xC00C, 1, 1, 600, 4) + socket.inet_aton(address)
            flags = 0x8180 if address else 0x8183
            header = query[:2] + struct.pack("!HHHHH", flags, 1, bool(answers), 0, 0)
            self.socket.sendto(header + question + answers, client)


@pytest.fixture
def names() -> Iterator[Names]:
    server = Names()
    yield server
    server.close()


@pytest.fixture
def start(runtime, tmp_path, names) -> Iterator[Callable[..., list[int]]]:
    """Start HAProxy for 127.0.0.1; return its port before each of some addresses."""
    processes: list[subprocess.Popen[bytes]] = []
    log = (tmp_path / "log").open("wb")

    def run(
        *addresses: str,
        password: bool = False,
        hurry: bool = False,
        cidrs: Sequence[str] = ("127.0.0.1/32",),
    ) -> list[int]:
        health, *ports = free_ports(len(addresses) + 1)
        behind = dict(zip(ports, addresses, strict=True))
        assert runtime.listen_address("gateway") == "0.0.0.0"
        runtime.address = lambda _service, port: behind[port]
        routes = [
            Route(service="service", port=port, setting="a", password=password) for port in ports
        ]
        edits = {
            "bind 127.0.0.1:8404": f"bind 127.0.0.1:{health}",
            "parse-resolv-conf": f"nameserver test 127.0.0.1:{names.port}",
        }
        if hurry:
            edits |= {"client 1m": "client 200ms", "server 5m": "server 200ms"}
            edits |= {"http-request 10s": "http-request 200ms"}
            if not password:
                edits |= {"inspect-delay 10s": "inspect-delay 200ms"}
        config = _config(runtime, gateway.password_hash("secret"), routes, cidrs)
        for old, new in edits.items():
            assert config.count(old) == 1
            config = config.replace(old, new)
        file = tmp_path / "haproxy.cfg"
        file.write_text(config)
        processes.append(
            subprocess.Popen(
                ["haproxy", "-f", str(file)], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        )
        ended = processes[-1].poll
        wait_for("HAProxy", lambda: ended() is not None or _healthy(health), DEADLINE_SECONDS)
        assert processes[-1].poll() is None, (tmp_path / "log").read_text()
        return ports

    yield run
    for process in processes:
        process.kill()
        process.wait()
    log.close()


def _healthy(port: int) -> bool:
    try:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=2)) as connection:
            connection.request("GET", gateway.HEALTH_PATH)
            return connection.getresponse().status == 200
    except OSError:
        return False


def _said(port: int, source: str = "127.0.0.1") -> str:
    """Return what the service says; "" from a connection that is closed."""
    try:
        with socket.create_connection(
            ("127.0.0.1", port), timeout=DEADLINE_SECONDS, source_address=(source, 0)
        ) as connection:
            connection.sendall(HELLO)
            return connection.recv(100).decode()
    except ConnectionError:
        return ""


def _get(port: int, password: str | None, source: str = "127.0.0.1") -> tuple[int, str]:
    headers = {}
    if password is not None:
        token = base64.b64encode(f"{gateway.USER}:{password}".encode()).decode()
        headers["Authorization"] = f"Basic {token}"
    connection = http.client.HTTPConnection(
        "127.0.0.1", port, timeout=DEADLINE_SECONDS, source_address=(source, 0)
    )
    with closing(connection):
        connection.request("GET", "/", headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


@needs_haproxy
def test_only_allowed_addresses_get_through(start, serve):  # F33
    (port,) = start(f"127.0.0.1:{serve()}")
    assert _said(port) == "127.0.0.1"
    assert _said(port, source="127.0.0.2") == ""


@needs_haproxy
def test_the_password_alone_lets_nobody_in(start, backend):  # F33
    (port,) = start(f"127.0.0.1:{backend}", password=True)
    assert _get(port, "secret")[0] == 200
    with pytest.raises(ConnectionError):
        _get(port, "secret", source="127.0.0.2")


@needs_haproxy
def test_the_password_is_asked_for_and_not_passed_on(start, backend):  # F37
    (port,) = start(f"127.0.0.1:{backend}", password=True)
    assert _get(port, None)[0] == 401
    assert _get(port, "wrong")[0] == 401
    assert _get(port, gateway.password_hash("secret"))[0] == 401
    assert _get(port, "secret") == (200, "None")


@needs_haproxy
@pytest.mark.parametrize(
    ("sent", "password"),
    [(b"", False), (HELLO[:-2], False), (HELLO[:-2], True), (b"\x16\x03\x01hello\r\n\r\n", False)],
)
def test_who_sends_no_whole_header_gets_no_connection(start, serve, backend, sent, password):
    (port,) = start(f"127.0.0.1:{backend if password else serve()}", password=password, hurry=True)
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_SECONDS) as slow:
        slow.sendall(sent)
        said = b""
        with suppress(ConnectionError):
            said = slow.recv(100)
    assert said.startswith(b"HTTP/1.1 408 ") if password else said == b""


@needs_haproxy
@pytest.mark.parametrize("password", [False, True])
def test_one_address_has_so_many_connections_and_no_more(start, backend, password, monkeypatch):
    monkeypatch.setattr(gateway, "ADDRESS_CONNECTIONS", 10)
    cidrs = ["127.0.0.1/32", "127.0.0.2/32"]
    first, second = start(*[f"127.0.0.1:{backend}"] * 2, password=password, cidrs=cidrs)
    with ExitStack() as opened:
        held = []
        for index in range(10):
            port = (first, second)[index % 2]  # of all routes together
            one = opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            one.sendall(HELLO)
            assert one.recv(100).startswith(b"HTTP/1.1 ")
            held.append(one)
        with pytest.raises(ConnectionError):
            _get(first, "secret")
        assert _get(first, "secret", source="127.0.0.2")[0] == 200
        held.pop().close()
        wait_for("room", lambda: _get(second, "secret")[0] == 200, DEADLINE_SECONDS)


@needs_haproxy
def test_no_route_takes_the_others_connections(start, backend, monkeypatch):
    monkeypatch.setattr(gateway, "ROUTE_CONNECTIONS", 3)
    first, second = start(*[f"127.0.0.1:{backend}"] * 2)
    with ExitStack() as opened:

        def connect() -> socket.socket:
            one = socket.create_connection(("127.0.0.1", first), timeout=DEADLINE_SECONDS)
            opened.enter_context(one).sendall(HELLO)
            return one

        held = [connect() for _ in range(3)]
        assert all(one.recv(100).startswith(b"HTTP/1.1 ") for one in held)
        waiting = connect()
        for _ in range(3):
            assert _get(second, None)[0] == 200
        assert select.select([waiting], [], [], 0)[0] == []
        held.pop().close()
        assert waiting.recv(100).startswith(b"HTTP/1.1 ")


@needs_haproxy
def test_a_quiet_connection_stays(start, serve):
    (port,) = start(f"127.0.0.1:{serve()}", hurry=True)
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_SECONDS) as quiet:
        quiet.sendall(HELLO)
        assert quiet.recv(100) == b"127.0.0.1"
        quiet.settimeout(1)  # five times as long as the timeouts of a connection that does nothing
        with pytest.raises(TimeoutError):
            quiet.recv(100)
        quiet.settimeout(DEADLINE_SECONDS)
        quiet.sendall(HELLO)
        assert quiet.recv(100) == b"127.0.0.1"


@needs_haproxy
def test_a_service_is_found_again_at_its_new_address(start, serve, names):  # F31
    inner = serve("127.0.0.1")
    serve("127.0.0.3", inner)
    (port,) = start(f"service.test:{inner}")
    assert _said(port) == ""  # it starts without it, and does not wait
    names.addresses["service.test"] = "127.0.0.1"
    wait_for("it", lambda: _said(port) == "127.0.0.1", DEADLINE_SECONDS)
    names.addresses["service.test"] = "127.0.0.3"
    wait_for("it elsewhere", lambda: _said(port) == "127.0.0.3", DEADLINE_SECONDS)
