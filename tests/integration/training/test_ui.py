"""`train ui` in a real Chromium, on a real cluster with what strangers wrote."""

import base64
import json
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import browser, ui_stack
from tests.integration.training.conftest import BUCKET
from tests.ui_stack import HOSTILE, SCRIPT
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(browser.PROGRAM is None, reason="chromium is not on PATH"),
]
RUN = "curves"
VIEWS = ("overview", "jobs", "runs", "sweeps", "services")
PROGRAM = """
import time
print({hostile!r}, flush=True)
print("\\x1b]0;had\\x07\\x1b[2J", flush=True)
for line in range(600):
    print("line", line, flush=True)
    time.sleep(0.5)
"""


@pytest.fixture(scope="module")
def job(cluster) -> Iterator[str]:
    """A job that prints until it is stopped, of a run, a user and a script with hostile names."""
    program = PROGRAM.format(hostile=SCRIPT)
    folder = cluster.folder / "hostile.py"
    folder.write_text(program)
    cluster.post(
        "/api/jobs/",
        json={
            "entrypoint": f"python {folder}",
            "submission_id": "hostile",
            "metadata": {"run": RUN, "user": HOSTILE, "job": SCRIPT, "commit": HOSTILE},
        },
    )
    yield "hostile"
    cluster.post("/api/jobs/hostile/stop")


@pytest.fixture(scope="module")
def page(cluster, job) -> Iterator[browser.Page]:
    """The page in a Chromium that came with the key, with hostile runs in the store."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ty-ui-")))
        for name, lr in ((RUN, 0.01), ("other", 0.001), (HOSTILE.replace("/", ""), 0.01)):
            ui_stack.write_run(folder / "store", name, epochs=3, lr=lr, **{HOSTILE: SCRIPT})
        strange = {"epoch": 3, SCRIPT: 1, "loss": 0.5, "valid_acc": HOSTILE}
        with (folder / "store" / RUN / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(strange) + "\n")
        for path in sorted((folder / "store").rglob("*.*")):
            if path.is_file():
                key = path.relative_to(folder / "store").as_posix()
                cluster.s3().put_object(Bucket=BUCKET, Key=key, Body=path.read_bytes())
        ui_stack.write_sweep(folder / "multirun" / SCRIPT.replace("/", ""), points=6)
        served = cluster.popen("ui", "--no-open", "--port", "0", cwd=folder)
        stack.callback(served.communicate)
        stack.callback(served.kill)
        address = served.stdout.readline().split()[1]
        tab = stack.enter_context(browser.page())
        tab.go(address)
        tab.wait_text("Nodes of dev")
        yield tab
        assert tab.errors == []
        served.send_signal(signal.SIGINT)
        assert served.wait(30) == 0
        assert "Traceback" not in served.stderr.read()


def show(page: browser.Page, view: str, text: str) -> None:
    page.value(f"location.hash = {json.dumps('#/dev/' + view)}")
    page.wait_text(text)


def test_each_view_shows_what_strangers_wrote_as_text(page, job):
    show(page, "jobs", HOSTILE)
    show(page, f"jobs/{job}", SCRIPT)
    page.wait_text("line 1")
    show(page, f"runs/{RUN},other", "Settings that differ")
    page.wait_text(HOSTILE.replace("/", ""))
    page.wait("document.querySelectorAll('canvas').length >= 5")
    show(page, "sweeps", SCRIPT.replace("/", ""))
    page.value("document.querySelector('main table a').click()")
    page.wait_text("the most valid_acc first")
    page.wait("document.querySelectorAll('canvas').length === 1")
    assert page.value("document.title").startswith("Sweep")
    assert page.value("document.querySelectorAll('img, main script, iframe').length") == 0
    assert page.errors == []


def test_a_script_that_gets_into_the_page_does_not_run(page):
    show(page, "services", "serves a run")
    writes = f"document.body.insertAdjacentHTML('beforeend', {json.dumps(HOSTILE)})"
    with pytest.raises(RuntimeError, match="TrustedHTML"):
        page.value(writes)
    inline = "const s = document.createElement('script'); s.textContent = \"document.title='had'\";"
    with pytest.raises(RuntimeError, match="TrustedScript"):
        page.value(f"{inline} document.body.append(s)")
    assert "had" not in page.value("document.title")
    blocked = "fetch('http://127.0.0.1:1/').then(() => 'sent', (e) => e.name)"
    assert page.value(blocked) == "TypeError"
    assert any("Content Security Policy" in each for each in page.errors)
    page.errors.clear()


def test_nodes_are_those_of_the_cluster_and_live(page):
    show(page, "overview", "Nodes of dev")
    page.wait("document.querySelectorAll('meter').length >= 3")  # of one machine, for all nodes
    assert page.value("[...document.querySelectorAll('meter')].every((m) => m.value <= m.max)")
    page.wait_text("dev\tup")


def test_curves_grow_while_a_run_trains(page, cluster):
    show(page, "runs/other", "Settings of other")
    chart = "Chart.getChart(document.querySelector('canvas')).data.datasets[0].data.length"
    page.wait(f"{chart} === 3")
    key = "other/metrics.jsonl"
    more = json.dumps(ui_stack.epoch_record(3, 0.001)).encode() + b"\n"
    cluster.s3().put_object(Bucket=BUCKET, Key=key, Body=cluster.read(key) + more)
    page.wait(f"{chart} === 4")
    page.wait("document.querySelector('main tbody').innerText.includes('4/20')")


def test_a_run_has_a_page_with_its_curves_log_and_files(page):
    show(page, "run/other", "metrics.jsonl")
    page.wait("document.querySelectorAll('canvas').length >= 4")
    chart = "Chart.getChart(document.querySelector('canvas'))"
    page.value("document.querySelector('main .bar input[type=checkbox]').click()")
    page.wait(f"{chart}.scales.y.type === 'logarithmic'")
    page.value(
        "(each => { each.value = 0.9; each.dispatchEvent(new Event('input')); })"
        "(document.querySelector('main input[type=range]'))"
    )
    page.wait(f"{chart}.data.datasets.length === 2")
    page.value(
        "(canvas => { for (const [kind, x] of [['down', 100], ['move', 150], ['up', 200]])"
        " canvas.dispatchEvent(Object.defineProperty(new PointerEvent(`pointer${kind}`),"
        " 'offsetX', {value: x})); })(document.querySelector('canvas'))"
    )
    page.wait(f"{chart}.scales.x.min > 0")
    page.value(
        "[...document.querySelectorAll('button')].find(b => b.innerText === 'Whole curves').click()"
    )
    page.wait(f"{chart}.scales.x.min <= 1")
    page.value("document.querySelector('[data-key=\"view-metrics.jsonl\"]').click()")
    page.wait_text('"valid_loss"')
    page.value("document.querySelector('[data-key=\"download-metrics.jsonl\"]').click()")
    assert page.errors == []


def test_a_table_keeps_the_columns_that_one_chooses(page):
    show(page, "runs", "Runs of dev")
    head = "[...document.querySelectorAll('main th')].map(each => each.innerText).join()"
    page.wait(f"{head}.includes('loss') && !{head}.includes('checkpoint')")
    page.value("document.querySelector('[data-key=column-checkpoint]').click()")
    page.value("document.querySelector('[data-key=column-loss]').click()")
    page.wait(f"{head}.includes('checkpoint') && !{head}.split(',').includes('loss')")
    page.call("Page.reload")
    page.wait(f"{head}.includes('checkpoint') && !{head}.split(',').includes('loss')")
    page.value("localStorage.removeItem('columns of runs')")


def test_a_filter_and_a_sort_work_with_the_keyboard(page):
    show(page, "runs", "Choose runs")
    page.wait("document.querySelectorAll('main tbody tr').length >= 3")
    # Jobs of other tests are runs, too.
    count = page.value("document.querySelectorAll('main tbody tr').length")
    page.value("document.querySelector('input[type=search]').focus()")
    page.type("other lr<0.005")
    page.wait_text(f"1 to 1 of 1 (of {count})")
    page.value("document.querySelector('input[type=search]').select()")
    page.type(" ")
    page.wait_text(f"1 to {count} of {count}")
    page.value("document.querySelector('[data-key=sort-run]').focus()")
    page.press("Enter")
    page.wait("document.querySelector('th[aria-sort=descending]')?.innerText.includes('run')")
    # The title that was pressed still has the focus, in the new head.
    assert page.value("document.activeElement.dataset.key") == "sort-run"


def test_every_control_is_reached_by_tab_and_has_a_name(page):
    show(page, "runs/other", "Settings of other")
    page.value("document.activeElement.blur(); document.body.focus()")
    reached = set()
    for _ in range(300):  # jobs of other tests are rows of the table, too
        page.press("Tab")
        what = "document.activeElement.tagName + ' ' + (document.activeElement.dataset.key ?? '')"
        reached.add(page.value(what).strip())
    assert {"A", "SELECT", "INPUT", "BUTTON sort-run"} <= reached
    assert "INPUT choose-other" in reached
    controls = {"button", "link", "checkbox", "searchbox", "combobox", "image", "img", "table"}
    named = [(role, name) for role, name in page.names() if role in controls]
    assert len(named) > 20
    assert [role for role, name in named if not name.strip()] == []
    assert ("checkbox", "Draw other") in named
    assert any(name.startswith("loss by epoch; last: other") for _, name in named)


@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize("size", [browser.DESKTOP, browser.PHONE])
def test_each_view_fits_the_screen_and_is_readable(page, scheme, size):
    page.scheme(scheme)
    page.size(*size)
    for view in VIEWS:
        page.value(f"location.hash = '#/dev/{view}'")
        page.wait(f"document.querySelector('nav [aria-current]').dataset.view === '{view}'")
        page.wait("document.querySelector('main h2') !== null")
        assert page.value("document.documentElement.scrollWidth") <= size[0], view
    colours = (
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    ink, paper = (sum(map(int, each[4:-1].split(","))) for each in page.value(colours))
    assert (ink > paper) == (scheme == "dark")
    assert abs(ink - paper) > 500


def test_a_job_is_stopped_by_its_button_which_asks_first(page, cluster, job):
    show(page, f"jobs/{job}", f"stop {job}")
    press = "document.querySelector('[data-key^=action-stop]').focus()"
    page.value(press)
    page.press("Enter")
    page.wait("document.querySelector('dialog').open")
    assert f"stop {job}" in page.value("document.querySelector('dialog').innerText")
    page.press("Escape")
    page.wait("!document.querySelector('dialog').open")
    assert cluster.jobs()[job]["status"] == "RUNNING"
    page.value(press)
    page.press("Enter")
    page.wait("document.querySelector('dialog').open")
    page.value("document.getElementById('ask-yes').focus()")
    page.press("Enter")
    wait_for("the end of the job", lambda: cluster.jobs()[job]["status"] == "STOPPED")
    page.wait_text(f"job {job}: STOPPED")
    # One truth: its status, and no button that would stop it again.
    page.wait("document.querySelector('main dd').innerText === 'STOPPED'")
    page.wait("document.querySelector('[data-key^=action-stop]') === null")


def test_a_run_is_pulled_by_its_button(page):
    show(page, "run/other", "pull other")
    page.value("document.querySelector('[data-key^=action-pull]').click()")
    page.wait_text("3 files of records in results/other")


def test_the_page_as_a_service_has_no_buttons_for_commands(tmp_path):
    ui_stack.write_run(tmp_path / "store", RUN)
    head = ui_stack.Head([ui_stack.job(1, "RUNNING")])
    with ExitStack() as stack:
        address = stack.enter_context(ui_stack.serving(head))
        file = ui_stack.write_outputs(tmp_path / "outputs.json", address, tmp_path / "store")
        url, _ = stack.enter_context(ui_stack.service_running(file))
        tab = stack.enter_context(browser.page())
        tab.call("Network.enable")
        given = base64.b64encode(":".join(ui_stack.VIEWER).encode()).decode()
        tab.call("Network.setExtraHTTPHeaders", headers={"Authorization": f"Basic {given}"})
        tab.go(url)
        tab.wait_text("This page only shows")
        for view, command in (("jobs/raysubmit_000001", "stop"), (f"run/{RUN}", "pull")):
            show(tab, view, f"train {command} ")
            assert tab.value("document.querySelectorAll('.action button:not(.small)').length") == 0
        show(tab, "jobs/raysubmit_000001", "Epoch: 001/020")
        assert tab.errors == []


def test_a_reload_and_other_tabs_of_one_browser_stay_in(tmp_path):  # F66
    with ExitStack() as stack:
        address = stack.enter_context(ui_stack.serving(ui_stack.Head([])))
        file = ui_stack.write_outputs(tmp_path / "outputs.json", address, tmp_path / "store")
        opens, _ = stack.enter_context(ui_stack.page_running(file))
        tab = stack.enter_context(browser.page())
        tab.go(opens)
        tab.wait_text("Nodes of dev")
        assert tab.value("document.cookie + location.hash") == ""
        tab.value("window.earlier = true")
        tab.call("Page.reload")
        tab.wait("window.earlier === undefined")
        tab.wait_text("Nodes of dev")
        for again in (opens, opens.partition("#")[0]):
            other = browser.Page(tab._connection).open()
            other.go(again)
            other.wait_text("Nodes of dev")
        stranger = stack.enter_context(browser.page())
        stranger.go(opens)
        stranger.wait_text("opens it in one browser")
