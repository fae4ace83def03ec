"""Who may ask the page's server, and what its answers let a browser do."""

import hashlib
import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests import ui_stack
from trainyard.access import typed
from trainyard.client.ui import server
from trainyard.client.ui.guard import MOST_BYTES

TOKEN = ui_stack.GUARD_TOKEN
PULL = {"stack": "dev", "command": f"{typed.program('train')} pull run-0001", "run": "run-0001"}
# Of dist/chart.umd.min.js of chart.js 4.6.1 in npm's registry.
CHART = "87364cc2b2a76a6684929e7d6b80b18a897794db38400caff1fcf1791c6925d2"


def test_the_key_opens_the_page_in_one_browser(guard, stranger):
    address = guard.address
    for method in ("HEAD", "GET", "GET"):  # F66: curl, a prefetch, the browser
        answer = stranger.request(method, address)
        assert answer.status_code == 200
        assert "set-cookie" not in answer.headers  # it would go to each port of 127.0.0.1
    ui_stack.exchange_key(stranger, address)
    assert stranger.get("/api/session").status_code == 200
    for key in (address.partition("=")[2], "wrong", "", "\xff"):
        headers = {"Origin": guard.origin, TOKEN: key.encode("latin1")}
        answer = stranger.post("/api/open", headers=headers)
        assert (answer.status_code, "in one browser" in answer.text) == (403, True)


@pytest.mark.parametrize("path", ["/api/session", "/api/dev/runs", "/api/commands", "/x"])
def test_a_browser_without_the_token_gets_nothing(stranger, path):
    for token in ("", "wrong", "\xff"):
        answer = stranger.get(path, headers={TOKEN: token.encode("latin1")})
        assert answer.status_code == 403
        assert "train ui" in answer.text


def test_another_host_gets_the_right_address(guard, browser):  # F66
    # A name of a site that now leads to 127.0.0.1, and a port that is forwarded to this one.
    for host in ("evil.example:8268", "127.0.0.1:8000", "127.0.0.1", "localhost:8268"):
        for path in ("/", "/api/session"):
            answer = browser.get(path, headers={"Host": host})
            assert answer.status_code == 403
            assert "answers at http://127.0.0.1:8268 only" in answer.text
            assert "-L 8268:127.0.0.1:8268 " in answer.text


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"Origin": None}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:8000"}, 403),
        ({"Origin": "null"}, 403),
        ({"X-Trainyard-Token": None}, 403),
        ({"X-Trainyard-Token": "wrong"}, 403),
        ({"Content-Length": str(MOST_BYTES + 1)}, 413),
    ],
)
def test_a_command_needs_origin_and_token(guard, browser, changed, status):
    token = browser.headers.pop(TOKEN)
    headers = {"Origin": guard.origin, TOKEN: token} | changed
    given = {name: value for name, value in headers.items() if value is not None}
    assert browser.post("/api/commands", json=PULL, headers=given).status_code == status
    assert browser.get("/api/commands", headers={TOKEN: token}).json() == {"rows": []}


def test_every_answer_forbids_scripts_of_others_and_frames(guard, browser):
    refused = TestClient(guard, base_url=guard.origin)
    answers = [browser.get(path) for path in ("/", "/static/ui.css", "/api/dev/runs", "/none")]
    for answer in (*answers, refused.get("/api/session")):
        policy = dict(each.split(" ", 1) for each in server_policy(answer.headers))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert policy["require-trusted-types-for"] == "'script'"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        # Pages of other ports are of the same site: this keeps their script elements out.
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "no-store"


def server_policy(headers) -> list[str]:
    return headers["content-security-policy"].split("; ")


def test_files_outside_the_page_are_not_served(browser):
    for path in ("../server.py", "%2e%2e/server.py", "..%2fserver.py", "/etc/passwd"):
        assert browser.get(f"/static/{path}").status_code == 404


def test_the_page_has_no_inline_script_and_writes_no_html():
    page = (server.STATIC / "index.html").read_text()
    assert re.findall(r"<script(?! src=\"/static/)", page) == []
    assert re.findall(r"<style|\son\w+=|style=|https?://", page) == []
    for path in own_scripts():
        text = path.read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|eval\(|document\.write", text)


def own_scripts() -> list[Path]:
    found = [path for path in server.STATIC.glob("*.js") if not path.name.startswith("chart.")]
    assert len(found) > 3
    return found


def test_the_library_for_charts_is_as_its_makers_released_it():
    content = (server.STATIC / "chart.umd.min.js").read_bytes()
    assert hashlib.sha256(content).hexdigest() == CHART
    assert "MIT" in (server.STATIC / "chart.LICENSE.md").read_text()
