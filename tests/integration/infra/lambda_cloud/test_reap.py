"""`python -m infra.operate.reap`, and the drift report, on a real account and real states."""

import json
import shutil
from datetime import datetime, timedelta

import pytest

from infra.machines import identity, local
from infra.operate import backend, reap
from infra.operate.drift import __main__ as drift
from tests.integration.infra.lambda_cloud.rented import RentedStack

pytestmark = pytest.mark.integration

MINE = {identity.OWNER: local.owner(), identity.ID: "0a1b2c3d", identity.STACK: "lost"}


@pytest.fixture
def reaped(rented, capsys):
    """Run the command; its exit code and its output."""

    def run(*arguments):
        capsys.readouterr()
        code = reap.main(["-C", str(rented.project), *arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def _here(rented, **changes):
    """Tags of an instance that a stack of this owner and backend has lost."""
    return MINE | {identity.BACKEND: backend.find(rented.project).id()} | changes


def _verdicts(text):
    return {found["id"]: found["verdict"] for found in json.loads(text)["findings"]}


def test_two_backends_of_one_owner_on_one_account(  # F46
    rented, cloud, reaped, monkeypatch, tmp_path
):
    rented.declare(count=1)
    rented.done("up")
    lost = cloud.account.add_instance("lost", tags=_here(rented))
    before = rented.live()
    # A backend that never had a stack knows no machines, and says so.
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}/second")
    code, text, err = reaped("--end", "--yes", "--json")
    assert code == 1
    assert f"{tmp_path}/second/.pulumi has no stack" in err
    assert set(_verdicts(text).values()) == {"of another backend"}
    # Nor does one with stacks of its own.
    second = RentedStack(tmp_path / "other", cloud, rented.engines)
    second.declare(count=1, keyFile=str(rented.key_file))
    second.done("up")
    own = rented.live() - before
    lost_here = cloud.account.add_instance("lost-here", tags=_here(second))
    code, text, _ = reaped("--end", "--yes", "--json")
    assert code == 0
    verdicts = _verdicts(text)
    assert {verdicts[id_] for id_ in before} == {"of another backend"}
    assert {verdicts[id_] for id_ in own} == {"in state"}
    assert verdicts[lost_here.id] == "orphan"
    assert rented.live() == before | own
    code, text, _ = reaped()
    assert code == 0
    assert "2 of another backend, or of none: 1.50 $/h" in text
    # A copy has all states of a moment ago, and must not end instances launched since.
    shutil.copytree(tmp_path / "second", tmp_path / "copy")
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}/copy")
    code, _, err = reaped("--end", "--yes")
    assert code == 1
    assert f"{tmp_path}/copy/.pulumi has no id: " in err
    # Only by its id.
    code, _, err = reaped("--end", lost.id, "--yes")
    assert code == 0
    assert rented.live() == (before | own) - {lost.id}
    code, _, err = reaped("--end", min(own), "--yes")
    assert code == 1
    assert f"{min(own)} is in state: destroy its stack. Nothing was ended" in err


def test_a_state_in_another_backend_marks_what_it_launches_from_then_on(  # F46
    rented, cloud, monkeypatch, tmp_path
):
    rented.declare(count=1)
    rented.done("up")
    first = backend.find(rented.project).id()
    rented.done("up", "--expect-no-changes")
    shutil.copytree(tmp_path / "backend", tmp_path / "moved")
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}/moved")
    rented.declare(count=2)
    rented.done("up")
    rented.done("up", "--expect-no-changes")
    tags = [cloud.account.instances[id_].tags[identity.BACKEND] for id_ in cloud.account.launched]
    assert tags == [first, backend.find(rented.project).id()]
    assert len(set(tags)) == 2
    rented.done("destroy")
    assert cloud.account.instances == {}
    assert cloud.account.rulesets == {}
    assert cloud.account.ssh_keys == {}


def test_what_an_up_is_launching_is_no_orphan_until_its_end(rented, cloud, reaped):  # F12, F49
    rented.declare(count=1)
    cloud.faults.delay("launch", 600, commit=True)
    process = rented.start("up")
    rented.wait_for(lambda: cloud.account.launched)
    rented.kill(process)
    code, text, _ = reaped("--end", "--yes", "--json")
    assert code == 0
    assert _verdicts(text)[cloud.account.launched[0]] == "under way"
    assert rented.live() == set(cloud.account.launched)
    # No `up` goes on, and no SSH has set its timer: the account's tags alone tell the end.
    tags = cloud.account.instances[cloud.account.launched[0]].tags
    end = datetime.fromisoformat(tags[identity.END])
    tags[identity.END] = (end - timedelta(hours=9)).isoformat()
    code, text, _ = reaped("--past-end", "--owner", "ann@lab")
    assert code == 1  # somebody has to look why
    assert "1 instance(s) past their end: 0.75 $/h" in text
    assert rented.live() == set()
    assert reaped()[0] == 0


def test_an_account_that_cannot_be_asked_makes_a_report_incomplete(rented, monkeypatch, capsys):
    rented.declare(count=1)
    rented.done("up")
    monkeypatch.setenv("LAMBDA_API_KEY", "wrong")
    capsys.readouterr()
    assert drift.main(["-C", str(rented.project), "-s", "dev"]) == 1
    printed = capsys.readouterr().out
    assert "not looked at: " in printed
    assert "Traceback" not in printed
