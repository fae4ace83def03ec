"""The timer of a rented machine: warns, then ends it; run as cron runs it, against a local API."""

import ast
import http.server
import json
import os
import subprocess
import sys
import threading
import time

import pytest

from infra.hosts import cloud_init

# The script with other paths, and, as on machines with Python 3.10, a datetime without UTC.
RUN = """
import datetime, pathlib, runpy, sys
if hasattr(datetime, "UTC"):
    del datetime.UTC
module = runpy.run_path(sys.argv[1])
names = module["main"].__globals__
for name, path in zip(("SETTINGS", "WARNED", "LOG", "ENDING", "IDLE_WARNED"), sys.argv[2:]):
    names[name] = pathlib.Path(path)
sys.exit(module["main"]())
"""


NO_HTTP = b"garbage\r\n"


class Api(http.server.ThreadingHTTPServer):
    """Takes one request after the other; keeps them."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.status = 200
        self.verdict = None  # None: the idle watch does not answer
        self.requests = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Answer(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, dict(self.headers), json.loads(body)))
        self.send_response(self.server.status)
        self.end_headers()

    def do_GET(self):
        allowed = self.headers["Authorization"] == "Bearer canary-idle"
        known = self.path == "/verdict" and allowed and self.server.verdict is not None
        if self.server.verdict == NO_HTTP:
            self.wfile.write(NO_HTTP)
            return
        self.send_response(200 if known else 401)
        self.end_headers()
        verdict = self.server.verdict
        self.wfile.write(verdict if isinstance(verdict, bytes) else json.dumps(verdict).encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def api():
    with Api() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Machine:
    """A rented machine with its timer."""

    def __init__(self, folder, api, put_program):
        self.settings = folder / "ttl.json"
        self.log = folder / "log"
        self._own = [folder / name for name in ("warned", "log", "ending", "idle-warned")]
        self._api = api
        self._bin = folder / "bin"
        self._bin.mkdir()
        self.wall = folder / "wall"
        put_program(self._bin, "wall", f'echo "$1" >> {self.wall}')

    def ends_in(self, minutes, **idle):
        settings = {
            "deadline": int(time.time() + minutes * 60),
            "apiUrl": self._api.url,
            "apiKey": "canary",
            "instanceId": "i-1",
        }
        if idle:
            settings["idle"] = {"url": f"{self._api.url}/verdict", "token": "canary-idle"} | idle
        self.settings.write_text(json.dumps(settings))

    def tick(self):
        """Run one minute of cron; return its exit status."""
        done = subprocess.run(
            [
                *(sys.executable, "-I", "-c", RUN, cloud_init.SCRIPT),
                *(self.settings, *self._own),
            ],
            env={"PATH": f"{self._bin}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert "canary" not in done.stdout + done.stderr  # cron mails it
        return done.returncode

    def fill(self):
        """Put its log where nothing can be written, even by root."""
        self._own[1] = "/dev/full"

    def said(self):
        """The warnings to logged-in users."""
        return self.wall.read_text().splitlines() if self.wall.exists() else []


@pytest.fixture
def machine(tmp_path, api, put_program):
    return Machine(tmp_path, api, put_program)


def test_without_settings_nothing_happens(machine, api):
    assert machine.tick() == 0
    assert machine.said() == []
    assert not machine.log.exists()
    assert api.requests == []


def test_each_bound_is_warned_of_once(machine, api):
    for minutes, warnings in ((90, 0), (59.5, 1), (58, 1), (29.5, 2), (9.5, 3), (4.5, 4), (3, 4)):
        machine.ends_in(minutes)
        assert machine.tick() == 0
        assert len(machine.said()) == warnings, minutes
    assert machine.said()[1] in (
        "this machine ends in 29 minutes: train pull RUN saves a run; or set a later end",
        "this machine ends in 30 minutes: train pull RUN saves a run; or set a later end",
    )
    assert api.requests == []
    lines = machine.log.read_text().splitlines()
    assert len(lines) == 4
    assert lines[0].startswith(time.strftime("%Y-%m-%dT", time.gmtime()))


def test_a_deadline_that_is_put_off_is_warned_of_anew(machine):
    machine.ends_in(4)
    machine.tick()
    machine.ends_in(600)
    machine.tick()
    machine.ends_in(4)
    machine.tick()
    assert len(machine.said()) == 2


def test_at_the_deadline_the_machine_is_terminated(machine, api):
    machine.ends_in(-1)
    assert machine.tick() == 0
    ((path, headers, body),) = api.requests
    assert path == "/api/v1/instance-operations/terminate"
    assert headers["Authorization"] == "Bearer canary"
    assert headers["Content-Type"] == "application/json"
    assert body == {"instance_ids": ["i-1"]}
    assert machine.said() == ["the time of this machine is over: terminating it (200)"]
    assert "canary" not in machine.log.read_text()  # F35


@pytest.mark.parametrize("status", [401, 429, 500])
def test_a_refused_end_is_tried_again(machine, api, status):
    machine.ends_in(-1)
    api.status = status
    for _ in range(2):
        assert machine.tick() == 1
    assert machine.said()[-1] == (
        f"this machine cannot be terminated ({status}); trying again in a minute"
    )
    api.status = 200
    assert machine.tick() == 0
    assert len(api.requests) == 3


def test_an_api_that_is_away_is_tried_again(machine, api):
    api.shutdown()
    api.server_close()
    machine.ends_in(-1)
    assert machine.tick() == 1
    assert "cannot be terminated" in machine.said()[-1]


def test_without_a_way_to_tell_anybody_it_goes_on(machine, api, monkeypatch):
    (machine.wall.parent / "bin" / "wall").unlink()
    monkeypatch.setenv("PATH", "")
    machine.ends_in(-1)
    assert machine.tick() == 0
    assert len(api.requests) == 1


@pytest.mark.parametrize(
    ("verdict", "last", "ends"),
    [
        ({"end": True, "end_head": False, "ends_in": -60}, False, True),
        ({"end": True, "end_head": False, "ends_in": -60}, True, False),
        ({"end": True, "end_head": True, "ends_in": -240}, True, True),
        ({"end": False, "end_head": False, "ends_in": 0}, False, False),
        # An unreadable answer counts as active.
        (None, False, False),
        ({}, False, False),
        ({"end": "yes", "end_head": "yes", "ends_in": None}, False, False),
        ([], False, False),
        ({"end": True, "end_head": True, "ends_in": "soon"}, False, False),
        (b"[" * 1_000_000, False, False),
        (NO_HTTP, False, False),
        ({"end": True, "end_head": True, "ends_in": -60, "active": "x" * 2**23}, False, False),
    ],
)
def test_an_idle_clusters_machines_end_the_heads_last(  # F39
    machine, api, verdict, last, ends
):
    api.verdict = verdict
    machine.ends_in(90, last=last)
    assert machine.tick() == 0
    assert len(api.requests) == ends
    if ends:
        assert machine.said()[-1] == "the cluster is idle: terminating it (200)"


@pytest.mark.parametrize("ends_in", [-60, 100])
def test_a_full_disk_keeps_no_machine_from_its_end(machine, api, ends_in):  # F16
    api.verdict = {"end": ends_in < 0, "end_head": False, "ends_in": ends_in}
    machine.ends_in(90, last=False)
    machine.fill()
    assert machine.tick() == 0
    assert len(api.requests) == (ends_in < 0)


def test_an_end_that_was_refused_is_tried_again_when_nobody_knows_any_more(machine, api):
    api.verdict, api.status = {"end": True, "end_head": True, "ends_in": -60}, 500
    machine.ends_in(90, last=False)
    assert machine.tick() == 1
    api.verdict, api.status = None, 200
    assert machine.tick() == 0
    assert len(api.requests) == 2


def test_an_end_that_was_refused_is_forgotten_once_somebody_works_again(machine, api):
    api.verdict, api.status = {"end": True, "end_head": True, "ends_in": -60}, 401
    machine.ends_in(90, last=False)
    assert machine.tick() == 1
    api.verdict, api.status = {"end": False, "end_head": False, "ends_in": None}, 200
    assert machine.tick() == 0
    api.verdict = None
    assert machine.tick() == 0
    assert len(api.requests) == 1


def test_an_idle_clusters_end_is_said_once_and_anew_after_work(machine, api):
    machine.ends_in(90, last=False)
    for ends_in, warnings in ((400, 0), (290, 1), (230, 1), (None, 1), (250, 2)):
        api.verdict = {"end": False, "end_head": False, "ends_in": ends_in}
        machine.tick()
        assert len(machine.said()) == warnings, ends_in
    said = "the cluster is idle and ends in 5 minutes: train keep 2h puts it off"
    assert machine.said()[0] == said
    assert api.requests == []


def test_it_runs_on_the_pythons_of_the_clouds_images():
    """Ubuntu 22.04 has Python 3.10, and the standard library only."""
    tree = ast.parse(cloud_init.SCRIPT.read_text(), feature_version=(3, 8))
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(node.module.partition(".")[0])
    assert modules <= sys.stdlib_module_names
