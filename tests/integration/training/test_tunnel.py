"""The tunnel to a stack on another machine: a real sshd, and `train` through it."""

import http.client
import itertools
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests import web
from tests.editor import attach
from tests.fakes import sshd as fake
from tests.fakes.sshd import Sshd
from tests.outputs import of_services
from tests.waiting import wait_for
from trainyard.access import ssh_client
from trainyard.access.outputs import NOTHING
from trainyard.client import outputs, tunnel
from trainyard.client.errors import ClientError

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(fake.BINARY is None, reason="sshd is not installed (openssh-server)"),
]

REPOSITORY = Path(__file__).resolve().parents[3]
BIG = bytes(range(256)) * 2**15  # 8 MiB
DEADLINE_S = 20.0


@contextmanager
def service(host: str = "127.0.0.1") -> Iterator[str]:
    """A server that answers with the request's content, its path, or the beginning of an answer.

    Yields its address.
    """
    ending = threading.Event()

    def answer(asked: web.Request) -> web.Said:
        if asked.body:
            return 200, asked.body
        content = f"{asked.path} at {asked.server.server_port}".encode()
        if asked.path != "/endless":
            return 200, content
        asked.send_response(200)
        asked.end_headers()
        asked.wfile.write(content)
        ending.wait(DEADLINE_S)
        return None

    with web.serving(answer, host) as server:
        yield server.url
        ending.set()


def get(url: str, body: bytes | None = None) -> bytes:
    address = url.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(address[0], timeout=DEADLINE_S)
    try:
        connection.request("POST" if body else "GET", f"/{address[2]}", body)
        return connection.getresponse().read()
    finally:
        connection.close()


def listens(url: str) -> bool:
    host, port = url.removeprefix("http://").partition("/")[0].split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


@pytest.fixture
def host(tmp_path) -> Iterator[Sshd]:
    """The machine that the stack's services are on."""
    with Sshd(tmp_path) as running:
        yield running


@pytest.fixture
def threads() -> Iterator[None]:
    """Fails a test after which a thread is left."""
    before = set(threading.enumerate())
    yield
    wait_for("the threads' end", lambda: set(threading.enumerate()) <= before, DEADLINE_S)


@pytest.fixture(autouse=True)
def _quick_and_without_agent(monkeypatch) -> None:
    monkeypatch.setattr(tunnel, "RETRY_MIN_S", 0.1)
    monkeypatch.setattr(tunnel, "RETRY_MAX_S", 0.2)
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


def access(host: Sshd, **changes: Any) -> dict[str, Any]:
    """The output `ssh` of a stack on that host."""
    return {
        "host": host.host,
        "port": host.port,
        "user": host.user,
        "hostKey": host.host_key,
        "keyFile": str(host.key_file),
        "privateKey": "",
    } | changes


def values(host: Sshd, dashboard: str, ssh: dict[str, Any] | None = None) -> dict[str, Any]:
    """The outputs of a stack on that host; only addresses matter."""
    known: dict[str, Any] = {**NOTHING, **of_services()}
    known |= {"stack": "lambda", "dashboardUrl": dashboard}
    return known | {"ssh": access(host) | (ssh or {})}


def stack(host: Sshd, dashboard: str, ssh: dict[str, Any] | None = None, **changes: str) -> Any:
    """The same, as the client reads them."""
    return outputs.parse(json.dumps(values(host, dashboard, ssh) | changes), None, "test")


def url(found: outputs.StackOutputs, output: str) -> str:
    """The URL of a service, by the name of its output."""
    (service,) = [service for service in found.services if service.output == output]
    return service.url


def opened(found: Any, said: list[str] | None = None, **options: Any) -> tunnel.Tunnel:
    report = [] if said is None else said
    return tunnel.Tunnel(found, report.append, **options)


@pytest.mark.usefixtures("threads")
def test_all_services_come_through_one_connection(host):
    with service() as dashboard, service() as grafana:
        found = stack(
            host,
            dashboard,
            grafanaUrl=grafana,
            notebookUrl=f"{grafana}/lab?token=t",
            trackingUrl=grafana,
            serveUrl=dashboard,
        )
        with opened(found) as through:
            here = through.outputs
            assert here.dashboard_url != dashboard
            assert get(f"{url(here, 'trackingUrl')}/health").startswith(b"/health at")
            assert get(f"{here.serve_url}/run").startswith(b"/run at")
            assert url(here, "prometheusUrl") == ""
            assert url(here, "notebookUrl").endswith("/lab?token=t")
            port = dashboard.rpartition(":")[2]
            assert get(f"{here.dashboard_url}/hello").decode() == f"/hello at {port}"
            assert get(url(here, "notebookUrl")).startswith(b"/lab?token=t at")
            assert get(url(here, "grafanaUrl"), BIG) == BIG
            assert [route.service for route in through.routes] == [
                *("Ray dashboard", "Ray Serve", "Grafana", "MLflow", "notebook")
            ]
            assert "token" not in str(through.routes)
            answers: list[bytes] = []
            shown = url(here, "grafanaUrl")
            clients = [
                threading.Thread(target=lambda: answers.append(get(shown, BIG[:99999])))
                for _ in range(16)
            ]
            for client in clients:
                client.start()
            for client in clients:
                client.join()
            assert answers == [BIG[:99999]] * 16
        assert not listens(here.dashboard_url)
        assert not listens(url(here, "grafanaUrl"))
    assert host.log.read_text().count("Accepted publickey") == 1
    wait_for("the connection's end", lambda: not host.connections(), DEADLINE_S)


def test_ports_are_the_hosts_own_where_they_are_free(host):
    # On one machine: a service at 127.0.0.2 leaves its number free at 127.0.0.1.
    with service("127.0.0.2") as free, service() as taken:
        found = stack(host, free, grafanaUrl=taken)
        with opened(found, same_ports=True) as through:
            assert through.outputs.dashboard_url == free.replace("127.0.0.2", "127.0.0.1")
            assert url(through.outputs, "grafanaUrl") != taken
            for address in (through.outputs.dashboard_url, url(through.outputs, "grafanaUrl")):
                assert get(address).startswith(b"/ at")


@pytest.mark.usefixtures("threads")
def test_a_connection_that_falls_silent_is_made_again(host, monkeypatch):
    monkeypatch.setattr(ssh_client, "KEEPALIVE_SECONDS", 0.3)
    said: list[str] = []
    with service() as dashboard, opened(stack(host, dashboard), said) as through:
        # The login's own process may still be there.
        wait_for("the login's end", lambda: len(host.connections()) == 1, DEADLINE_S)
        [connection] = host.connections()
        connection.suspend()  # as when a laptop is on another network now: no end is seen
        wait_for("the return", lambda: len(said) >= 2, DEADLINE_S)
        assert get(through.outputs.dashboard_url).startswith(b"/ at")
        connection.kill()


@pytest.mark.usefixtures("threads")
def test_a_host_that_was_away_is_found_again(host, monkeypatch):
    monkeypatch.setattr(tunnel, "REACH_S", 0.3)
    said: list[str] = []
    with service() as dashboard, opened(stack(host, dashboard), said) as through:
        url = through.outputs.dashboard_url
        host.stop()
        wait_for("the loss", lambda: said, DEADLINE_S)
        started = time.monotonic()
        with pytest.raises(ConnectionError):  # closed, after a while
            get(url)
        assert time.monotonic() - started > 0.25
        assert len(said) == 1
        host.start()
        wait_for("the return", lambda: len(said) == 2, DEADLINE_S)
        assert get(url).startswith(b"/ at")


def test_the_wait_between_attempts_grows_and_has_a_bound(host, monkeypatch):
    monkeypatch.setattr(tunnel, "RETRY_MIN_S", 0.01)
    monkeypatch.setattr(tunnel, "RETRY_MAX_S", 0.05)
    waits: list[float] = []
    real = tunnel.asyncio.sleep

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await real(seconds)

    with service() as dashboard, opened(stack(host, dashboard)):
        monkeypatch.setattr(tunnel.asyncio, "sleep", sleep)
        host.stop()
        wait_for("six attempts", lambda: len(waits) >= 6, DEADLINE_S)
        monkeypatch.undo()
    assert waits[:5] == [0.01, 0.02, 0.04, 0.05, 0.05]


def test_an_answer_that_is_cut_is_no_whole_one(host):
    with service() as dashboard, opened(stack(host, dashboard)) as through:
        address = through.outputs.dashboard_url.removeprefix("http://")
        connection = http.client.HTTPConnection(address, timeout=DEADLINE_S)
        connection.request("GET", "/endless")
        answer = connection.getresponse()  # without a length: its end is the connection's
        assert answer.read(8) == b"/endless"
        host.cut()
        with pytest.raises(ConnectionError):
            answer.read()
        connection.close()


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("kind", ["ed25519", "rsa"])
def test_another_host_key_is_refused(kind, host, tmp_path):
    pinned = Sshd.new_key(tmp_path / "other", kind=kind)
    with (
        pytest.raises(ClientError) as caught,
        opened(stack(host, "http://x:1", {"hostKey": pinned})),
    ):
        pass
    message = str(caught.value)
    for key in ("other.pub", "host_key.pub"):
        shown = subprocess.check_output(["ssh-keygen", "-lf", tmp_path / key], text=True)
        assert shown.split()[1] in message
    assert "somebody may be in between" in message
    assert "make up STACK=lambda" in message
    assert "userauth-request" not in host.log.read_text()


def attempt(to: Sshd, **ssh: Any) -> str:
    """The message when the host does not let the tunnel in."""
    with pytest.raises(ClientError) as caught, opened(stack(to, "http://x:1", ssh)):
        pass
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.usefixtures("threads")
def test_a_key_that_is_not_let_in_is_named(host, tmp_path):
    """test_ssh_key.py has files that are not keys."""
    path = tmp_path / "other"
    Sshd.new_key(path)
    shown = subprocess.check_output(["ssh-keygen", "-lf", path], text=True).split()[1]
    assert re.search(
        rf"{host.user}@127.0.0.1:{host.port} refuses the key {re.escape(shown)}.*{path}.*"
        f"authorized_keys of user '{host.user}'",
        attempt(host, keyFile=str(path)),
    )


@pytest.mark.usefixtures("threads")
def test_a_host_that_is_not_reached_is_named(host, monkeypatch):
    host.stop()
    where = rf"{host.user}@127.0.0.1:{host.port}"
    rented = {"keyFile": "", "privateKey": host.key_file.read_text()}
    for said in (attempt(host), attempt(host, **rented)):
        assert said.startswith(f"cannot reach {where} within 10 s (Connection refused)")
    assert "make refresh STACK=lambda" in said
    assert "cannot reach" in attempt(host, host="no-such-host.invalid")
    monkeypatch.setattr(tunnel, "CONNECT_TIMEOUT_S", 0.5)
    with socket.create_server(("127.0.0.1", host.port)):  # listens, and says nothing
        assert attempt(host).startswith(f"cannot reach {where} within 0.5 s (no answer)")


def test_a_service_that_is_away_is_said_once(host):
    said: list[str] = []
    with service() as dashboard:
        pass
    with opened(stack(host, dashboard), said) as through:
        for _ in range(3):
            with pytest.raises(ConnectionError):
                get(through.outputs.dashboard_url)
    there = dashboard.removeprefix("http://")
    [line] = said
    assert line.startswith(f"tunnel: nothing answers at {there} on {host.user}@127.0.0.1")
    assert "refused" in line
    assert "`train info -s lambda` says what has ended" in line


def test_a_host_that_forbids_it_is_named(tmp_path):
    said: list[str] = []
    with (
        Sshd(tmp_path, "AllowTcpForwarding no") as host,
        service() as dashboard,
        opened(stack(host, dashboard), said) as through,
        pytest.raises(ConnectionError),
    ):
        get(through.outputs.dashboard_url)
    assert re.search(
        r"may not forward to 127.0.0.1:\d+: it needs `AllowTcpForwarding yes`", said[0]
    )


@pytest.mark.usefixtures("threads")
def test_an_address_that_is_none_is_named(host):
    with (
        service() as dashboard,
        pytest.raises(
            ClientError, match="output 'grafanaUrl' of stack 'lambda' is not an http address"
        ),
        opened(stack(host, dashboard, grafanaUrl="nowhere")),
    ):
        pass


# `train tunnel`


@contextmanager
def command(tmp_path: Path, found: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
    path = tmp_path / "outputs.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps(found))
    process = subprocess.Popen(
        [sys.executable, "-m", "trainyard.client", "tunnel", "--outputs", path],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=REPOSITORY,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("way", [signal.SIGINT, signal.SIGTERM])
def test_the_command_ends_when_told(way, host, tmp_path):
    with service() as dashboard, command(tmp_path, values(host, dashboard)) as process:
        lines = [process.stdout.readline().strip() for _ in range(3)]
        assert lines[0].split("\t") == ["service", "here", "there"]
        name, here, there = lines[1].split("\t")
        assert (name, there) == ("Ray dashboard", dashboard)
        assert lines[2] == f"through {host.user}@127.0.0.1:{host.port}; Ctrl-C ends it"
        assert get(here).startswith(b"/ at")
        host.cut()
        assert "lost the connection" in process.stdout.readline()
        assert "is back" in process.stdout.readline()
        assert get(here).startswith(b"/ at")
        process.send_signal(way)
        rest = process.stdout.read().strip()
        code = process.wait(DEADLINE_S)
        assert not listens(here)
    if way is signal.SIGINT:
        assert (code, rest) == (130, "tunnel closed")
    else:
        assert (code, rest) == (-signal.SIGTERM, "")
    wait_for("the connection's end", lambda: not host.connections(), DEADLINE_S)


def test_the_command_says_why_it_gives_up(host, tmp_path):
    with command(tmp_path, values(host, "http://127.0.0.1:1")) as process:
        for _ in range(3):
            process.stdout.readline()
        host.stop()
        Sshd.new_key(tmp_path / "host_key")
        host.start()
        rest = process.stdout.read()
        assert process.wait(DEADLINE_S) == 1
    assert "given up: the host key of" in rest
    assert "Traceback" not in rest


# Every command alone

COUNTING = """
import sys, time
for i in range(int(sys.argv[1]) if sys.argv[1:] else 80):
    print(f"line {i}", flush=True)
    time.sleep(0.1)
"""


@pytest.fixture
def counting(tmp_path) -> str:
    """Path of a job that logs for eight seconds, or as many tenths as it is told."""
    script = tmp_path / "work" / "job.py"
    script.parent.mkdir()
    script.write_text(COUNTING)
    return str(script)


@pytest.fixture
def away(cluster, host) -> Iterator[Any]:
    """The cluster, as somebody sees it who reaches it by SSH alone."""
    here = cluster.outputs_file
    ends = (datetime.now(UTC) + timedelta(minutes=30)).isoformat()
    cluster.outputs_file = cluster.write_outputs("away.json", ssh=access(host), expiresAt=ends)
    yield cluster
    cluster.outputs_file.unlink()
    cluster.outputs_file = here


def forwarded(host: Sshd, url: str) -> int:
    """The number of the host's connections to an address."""
    address, _, port = url.removeprefix("http://").partition(":")
    return host.log.read_text().count(f", target {address} port {port}\n")


# The work of a training that a tunnel could notice: records in the store.
RECORDING = """
import os
from trainyard.tracking.run_folder import RUN_VARIABLE, STORAGE_VARIABLE
from trainyard.tracking.runs import Run

run = Run(os.environ[STORAGE_VARIABLE], os.environ[RUN_VARIABLE])
run.start({"job": "far", "epochs": 1})
run.write_metrics([{"epoch": 0, "loss": 1.0, "minutes": 0.1}])
print(f"Training completed after 1 epochs: {run.url}")
"""


def test_a_training_goes_through(away, host, tmp_path):
    script = tmp_path / "work" / "job.py"
    script.parent.mkdir()
    script.write_text(RECORDING)
    result = away.train("submit", str(script), "--name", "far")
    assert result.returncode == 0, result.stdout + result.stderr
    said = result.stdout.splitlines()
    assert re.match(r"Job submission server address: http://127.0.0.1:\d+$", said[0])
    assert said[0] != f"Job submission server address: {away.outputs['dashboardUrl']}"
    assert "Training completed after 1 epochs: s3://ray/far" in said
    assert re.match(r"warning: stack 'dev' ends itself at .* UTC, in \d+ min: ", result.stderr)
    assert result.stderr.count("\n") == 1
    for name in ("dashboardUrl", "objectStoreEndpoint"):
        assert forwarded(host, away.outputs[name]), name
    # The store is reached too; other tests of this cluster left runs of theirs there.
    assert "far" in [row["run"] for row in json.loads(away.train("runs", "--json").stdout)]
    wait_for("the connection's end", lambda: not host.connections(), DEADLINE_S)


def test_a_command_that_is_interrupted_takes_its_tunnel_along(away, host, counting):
    process = away.popen("submit", counting, "--", "3000")  # longer than a busy machine may stall
    try:
        for line in process.stdout:
            if line == "line 3\n":
                process.send_signal(signal.SIGINT)
                break
        rest = process.stdout.read()
        assert process.wait(DEADLINE_S) == 130
    finally:
        process.kill()
    job_id = re.findall(r"stop it: `\S*train stop ([^\s`]+)", rest)[0]
    wait_for("the connection's end", lambda: not host.connections(), DEADLINE_S)
    assert f"job {job_id}: STOPPED" in away.train("stop", job_id).stdout


def test_a_log_goes_on_after_a_cut(away, host, counting):
    process = away.popen("submit", counting, "--name", "cut-off")
    seen = ""
    try:
        for line in process.stdout:
            seen += line
            if line in {"line 5\n", "line 30\n"}:
                assert host.cut()
        assert process.wait(DEADLINE_S) == 0, seen + process.stderr.read()
        said = process.stderr.read()
    finally:
        process.kill()
    numbers = [int(n) for n in re.findall(r"^line (\d+)$", seen, re.MULTILINE)]
    assert numbers == list(range(80))  # F28: every line once
    assert said.count("tunnel: lost the connection") == 2, said
    assert said.count("is back") == 2, said


def test_an_editor_stops_a_run_on_another_machine(away, tmp_path):
    script = tmp_path / "work" / "job.py"
    script.parent.mkdir()
    script.write_text("found = 6\nfound *= 7\nprint('found', found, flush=True)\n")
    process = away.popen("dev", str(script), "--debug")
    late = threading.Timer(60, process.kill)
    late.start()
    try:
        lines = iter(process.stdout.readline, "")
        shown = list(itertools.takewhile(lambda line: line != "}\n", lines))
        configuration = json.loads("".join(shown[shown.index("{\n") :]) + "}")
        connect = configuration["connect"]
        with closing(
            attach((connect["host"], connect["port"]), pathMappings=configuration["pathMappings"])
        ) as editor:
            editor.until(event="initialized")
            editor.send("setBreakpoints", source={"path": str(script)}, breakpoints=[{"line": 3}])
            editor.send("configurationDone")
            thread = editor.until(event="stopped")["body"]["threadId"]
            editor.send("stackTrace", threadId=thread)
            top = editor.until(command="stackTrace")["body"]["stackFrames"][0]
            assert (top["source"]["path"], top["line"]) == (str(script), 3)
            editor.send("continue", threadId=thread)
            assert "found 42\n" in lines
    finally:
        late.cancel()
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
