"""Reading states, wherever they are."""

import gzip
import json
from dataclasses import replace
from datetime import UTC, datetime

import pulumi
import pytest

from infra.operate import backend, expired, states
from infra.operate.states import RecordedStack


def _rented(kind, id_, **outputs):
    return {"type": f"pulumi-python:dynamic/lambda:{kind}", "id": id_, "outputs": outputs}


DEPLOYMENT = {
    "pending_operations": [],
    "resources": [
        _rented("Account", "0a1b2c3d", stackId="0a1b2c3d"),
        _rented("Instance", "i-1", launchedAt="2026-11-01T10:00:00+00:00", ttlHours=8.0),
        _rented("Instance", "i-2", launchedAt="2026-11-01T12:00:00+00:00", ttlHours=8.0),
        _rented("FirewallRuleset", "0a1b2c3d", ids={"us-east-1": "r-1"}),
        {"type": "docker:index/container:Container", "id": "i-9", "outputs": {}},
    ],
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    for name in ("PULUMI_BACKEND_URL", "PULUMI_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "Pulumi.yaml").write_text("name: trainyard\nruntime: python\n")
    return folder


def _read(folder):
    return states.read_stacks(folder, backend.find(folder))


def _write(folder, deployment, project="trainyard", stack="dev"):
    path = folder / ".pulumi" / "stacks" / project / f"{stack}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"version": 3, "checkpoint": {"latest": deployment}}))
    return path


EXPECTED = RecordedStack(
    project="trainyard",
    name="dev",
    ids=frozenset({"i-1", "i-2", "r-1", "0a1b2c3d"}),
    mark="0a1b2c3d",
    cloud="lambda",
    busy=False,
    expires=datetime(2026, 11, 1, 20, tzinfo=UTC),  # of the last instance
    ends={
        "i-1": datetime(2026, 11, 1, 18, tzinfo=UTC),
        "i-2": datetime(2026, 11, 1, 20, tzinfo=UTC),
    },
)


def test_a_stack_expires_when_its_timers_end_its_instances(project):
    place = project.parent / "home"
    timer = {"type": "pulumi-python:dynamic/lambda:Deadline", "id": "i-1"}
    timer["inputs"] = {"at": "2026-11-01T19:00:00+00:00"}  # ttlHours was raised
    # The other one was launched later, for a group that grows, and has no timer yet.
    _write(place, DEPLOYMENT | {"resources": [*DEPLOYMENT["resources"], timer]})
    (found,) = _read(project)
    assert found.expires == datetime(2026, 11, 1, 19, tzinfo=UTC)
    assert found.ends == EXPECTED.ends | {"i-1": found.expires}


def test_the_stacks_of_this_project_that_are_past_their_time_are_told(  # F49
    project, monkeypatch, capsys
):
    place = project.parent / "home"
    for name, stack in (("trainyard", "pr-7"), ("trainyard", "dev"), ("other", "pr-8")):
        _write(place, DEPLOYMENT, project=name, stack=stack)
    _write(place, {}, stack="no-machines")
    monkeypatch.chdir(project)
    assert expired.stacks(project, datetime(2026, 11, 1, 19, 59, tzinfo=UTC)) == []
    assert expired.stacks(project, datetime(2026, 11, 1, 20, tzinfo=UTC)) == ["dev", "pr-7"]
    assert expired.main() == 0
    assert capsys.readouterr().out == "dev\npr-7\n"
    _write(place, {}).write_text("")
    assert expired.main() == 1
    assert "dev.json cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("where", ["environment", "project", "login", "home"])
def test_states_are_found_where_the_engines_look(project, monkeypatch, where):
    home, place = project.parent / "home", project.parent / "place"
    home.mkdir()
    if where == "environment":
        monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{place}")
    elif where == "project":
        (project / "Pulumi.yaml").write_text("name: trainyard\nbackend: {url: file://../place}\n")
    elif where == "login":
        (home / ".pulumi").mkdir()
        login = {"current": f"file://{place}"}
        (home / ".pulumi" / "credentials.json").write_text(json.dumps(login))
    _write(home if where == "home" else place, DEPLOYMENT)
    assert _read(project) == [EXPECTED]


def test_states_of_all_projects_count_and_copies_do_not(project):
    home = project.parent / "home"
    path = _write(home, DEPLOYMENT)
    _write(home, {}, project="other", stack="empty")
    path.with_suffix(".json.bak").write_text("an older one")
    found = {(stack.project, stack.name) for stack in _read(project)}
    assert found == {("trainyard", "dev"), ("other", "empty")}


@pytest.mark.parametrize("hours", ["x", [1], 1e999])
def test_machines_that_another_version_wrote_are_one_message(project, hours):  # F80
    odd = json.loads(json.dumps(DEPLOYMENT))
    for each in odd["resources"]:
        each.setdefault("outputs", {})["ttlHours"] = hours
    _write(project.parent / "home", odd)
    with pytest.raises(pulumi.RunError, match=r"cannot read .*; restore a copy of it"):
        _read(project)


def test_a_create_under_way_is_noticed(project):
    pending = [{"type": "creating", "resource": {"type": "t"}}]
    _write(project.parent / "home", DEPLOYMENT | {"pending_operations": pending})
    assert _read(project)[0].busy


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"checkpoint": {}}', '{"checkpoint": 1}'])
def test_a_state_that_cannot_be_read_is_named(project, content):  # F15
    path = _write(project.parent / "home", {})
    path.write_text(content)
    with pytest.raises(pulumi.RunError, match=r"dev.json cannot be read .* Nothing was ended"):
        _read(project)


def test_a_state_of_which_only_copies_are_left_is_named(project):  # F15
    path = _write(project.parent / "home", DEPLOYMENT)
    backup = path.parents[2] / "backups" / "trainyard" / "dev"
    backup.mkdir(parents=True)
    assert len(_read(project)) == 1
    (backup / "dev.1.json").write_text(path.read_text())
    assert len(_read(project)) == 1
    path.unlink()
    with pytest.raises(pulumi.RunError, match=r"dev.json is missing, .* Nothing was ended"):
        _read(project)
    # As the CLI leaves a stack that it removed.
    (backup / "dev.2.json").write_text(_write(project.parent, {}).read_text())
    assert _read(project) == []
    for copy in backup.iterdir():
        copy.unlink()
    assert _read(project) == []


def test_a_state_of_no_project_is_named(project):
    path = _write(project.parent / "home", DEPLOYMENT)
    path.rename(path.parents[1] / path.name)
    with pytest.raises(pulumi.RunError, match=r"stacks/dev.json .*pulumi state upgrade"):
        _read(project)


def test_a_compressed_state_is_named(project):
    path = _write(project.parent / "home", {})
    path.with_suffix(".json.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    with pytest.raises(pulumi.RunError, match=r"dev.json.gz cannot be read"):
        _read(project)


CLI = """#!/bin/sh
case "$*" in
"stack ls --all --json --non-interactive") echo '[{"name": "organization/trainyard/dev"}]' ;;
"whoami --non-interactive") echo ann ;;
"stack export --stack organization/trainyard/dev --non-interactive") cat "$EXPORT" ;;
*) echo "what is $*" >&2; exit 1 ;;
esac
"""


def test_other_backends_are_read_by_the_cli(project, monkeypatch):
    tool = project.parent / "bin" / "pulumi"
    tool.parent.mkdir()
    tool.write_text(CLI)
    tool.chmod(0o755)
    export = project.parent / "export.json"
    export.write_text(json.dumps({"version": 3, "deployment": DEPLOYMENT}))
    monkeypatch.setenv("EXPORT", str(export))
    monkeypatch.setenv("PULUMI_BACKEND_URL", "gs://states")
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    assert _read(project) == [EXPECTED]
    monkeypatch.setenv("PULUMI_BACKEND_URL", "https://api.example.com")
    for name, organization in (("team/trainyard/dev", "team"), ("trainyard/dev", "ann")):
        tool.write_text(CLI.replace("organization/trainyard/dev", name))
        assert _read(project) == [replace(EXPECTED, organization=organization)]
    tool.write_text("#!/bin/sh\necho no credentials >&2; exit 255\n")
    with pytest.raises(pulumi.RunError, match="no credentials"):
        _read(project)
    tool.unlink()
    with pytest.raises(pulumi.RunError, match="needs the pulumi CLI"):
        _read(project)
