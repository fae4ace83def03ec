"""Checks of `train serve` before anything is sent, and its list of services."""

import json
from dataclasses import replace

import pytest

from trainyard.client import serve
from trainyard.client.errors import ClientError
from trainyard.serving import SERVICES, uploaded
from trainyard.store import signed
from trainyard.store.objects import MOST_BYTES, FolderStore
from trainyard.tracking.run_folder import CONFIG, JOBS


@pytest.fixture
def served(stack, tmp_path, monkeypatch):
    for name in ("first", "second", "untrained"):
        (tmp_path / "storage" / name).mkdir(parents=True)
        (tmp_path / "storage" / name / CONFIG).write_text("{}")
    (tmp_path / "storage" / "second" / "checkpoint_000001-abcd").mkdir()
    (tmp_path / "storage" / "only" / "checkpoint_000002-abcd").mkdir(parents=True)
    own = tmp_path / "storage" / "own" / "checkpoint_000003-abcd"
    own.mkdir(parents=True)
    (own / "manifest.json").write_text('{"model": {"job": "mine"}}')
    for name, more in (("plain", {}), ("mine", {"answers": "predict"})):
        (tmp_path / "storage" / name).mkdir()
        job = {"job": "1", "ended": "2026-11-29", **more}
        (tmp_path / "storage" / name / JOBS).write_text(json.dumps(job))
    monkeypatch.setattr(uploaded.signed, "cluster_key", lambda: signed.derived(stack.ray_token))
    (tmp_path / "mine.py").write_text("def predict(inputs): ...")
    command, env = ["python", "mine.py"], {"pip": ["cowsay"]}
    store = FolderStore(tmp_path / "storage")
    assert uploaded.keep(store, "mine", command, tmp_path, ["mine.py"], env)
    return replace(stack, serve_url="http://127.0.0.1:8000")


@pytest.fixture
def sent(monkeypatch):
    found = []
    monkeypatch.setattr(serve, "_submit", lambda *given: found.append(given))
    return found


def start(outputs, **changes):
    options = {
        "checkpoint": None,
        "replicas": "1",
        "replica": {"CPU": 1.0, "GPU": 0.0},
        "timeout_s": 300,
    }
    names = {"run": "first", "service": "first"}
    both = names | options | changes
    serve.start(both.pop("run"), both.pop("service"), outputs, **both)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"run": "A B"}, "run name 'A B' is not"),
        ({"service": "../x"}, "run name '../x' is not"),
        ({"replica": {"CPU": 5.0, "GPU": 0.0}}, "asks for CPU 5 on one node"),
        ({"replica": {"CPU": 1.0, "GPU": 1.0}, "replicas": "2:9"}, "not all fit together"),
        *(
            ({"replicas": given}, f"--replicas '{given}' is not a number from 1 to 1000, or two")
            for given in ("0", "4:1", "1:", ":2", "0:2", "1:1001", "x", "-1", "²")
        ),
        # An answer without a job.
        ({"run": "frist"}, r"no run is called 'frist' in .*: did you mean 'first'\? `train runs`"),
        (
            {"run": "untrained"},
            "run 'untrained' cannot be served: it has no checkpoint yet: `train show untrained`",
        ),
        (
            {"run": "plain"},
            r"run 'plain' cannot be served: its script does not define predict\(inputs\): add it",
        ),
        (
            {"run": "own"},
            "run 'own' cannot be served: the checkpoint's manifest does not have arch",
        ),
        (
            {"run": "second", "checkpoint": "checkpoint_2"},
            "run 'second' has no checkpoint 'checkpoint_2': give one of checkpoint_000001-abcd",
        ),
    ],
)
def test_what_cannot_be_served_is_refused_before_anything_is_sent(changes, message, served):  # F29
    with pytest.raises(ClientError, match=message):
        start(served, **changes)


@pytest.mark.parametrize("checkpoint", [None, "checkpoint_000002-abcd"])
def test_a_run_of_which_only_checkpoints_were_copied_is_served(checkpoint, served, sent):
    start(served, run="only", checkpoint=checkpoint)
    assert [arguments[0] for _, arguments, *_ in sent] == ["only"]


def test_a_manifest_that_is_too_long_is_left_to_the_job(served, sent, tmp_path):
    with (tmp_path / "storage" / "own" / "checkpoint_000003-abcd" / "manifest.json").open("w") as m:
        m.truncate(MOST_BYTES + 1)
    start(served, run="own")
    assert len(sent) == 1


def test_a_runs_own_code_is_served_with_its_packages_and_by_its_own_stack(  # F40
    served, sent, tmp_path
):
    start(served, run="mine")
    (tmp_path / "storage" / "mine").chmod(0o777)  # by others, too
    with pytest.raises(ClientError, match=r"mine/code\.signed in .* was not stored by this stack"):
        start(replace(served, ray_token="another"), run="mine")
    start(replace(served, ray_token="another"), run="mine", trust_code=True)
    assert [packages for *_, packages in sent] == [{"pip": ["cowsay"]}] * 2
    assert ["--trust-code" in arguments for _, arguments, *_ in sent] == [False, True]


def test_a_stack_that_has_no_address_for_services(served):
    with pytest.raises(ClientError, match="its output serveUrl is empty"):
        start(replace(served, serve_url=""))


def test_the_line_to_try_has_no_token(served):
    line = serve.how_to_ask("first", served, serve.JSON)
    assert line.endswith("--json @inputs.json http://127.0.0.1:8000/first/predict")
    line = serve.how_to_ask("first", served)
    assert line.endswith("-F images=@b.jpg http://127.0.0.1:8000/first/predict")
    assert "train output serveToken --show-secrets -s dev" in line
    assert served.serve_token not in line
    assert "rayToken" not in line


def test_rows_of_what_is_served(served):
    deployment = {
        "deployment_config": {"user_config": {"run": "first", "checkpoint": "checkpoint_1"}},
        "replicas": [{"state": "RUNNING"}, {"state": "STARTING"}],
        "target_num_replicas": 2,
        "message": "waits",
    }
    application = {
        "name": "first",
        "status": "DEPLOYING",
        "message": "",
        "route_prefix": "/first",
        "deployments": {"model": deployment},
    }
    assert serve._row(application, served) == {
        "service": "first",
        "status": "DEPLOYING",
        "replicas": "1/2",
        "run": "first",
        "checkpoint": "checkpoint_1",
        "url": "http://127.0.0.1:8000/first",
        "message": "waits",
    }
    foreign = {"name": "x", "status": "NOT_STARTED", "message": "", "route_prefix": None}
    row = serve._row(foreign | {"deployments": {}}, served)
    assert (row["run"], row["replicas"], row["url"]) == ("", "0/0", "http://127.0.0.1:8000")
    deployment["deployment_config"]["user_config"] = ["of another job"]
    assert serve._row(application, served)["run"] == ""


def test_services_that_a_head_has_lost_are_deployed_again(served, sent, tmp_path, monkeypatch):
    store = FolderStore(tmp_path / "storage")
    key = signed.derived(served.ray_token)
    facts = json.dumps({"arguments": ["mine", "--name", "x"], "packages": {"pip": ["cowsay"]}})
    monkeypatch.setattr(serve, "services", lambda _: [{"service": "there"}])
    monkeypatch.setattr(serve, "_submit", lambda *given: sent.append(given) or (None, "job-1"))
    serve.deploy_again(served)  # nothing was served
    for service, by, named in (
        ("lost", key, "lost"),
        ("there", key, "there"),
        ("of-another-stack", signed.derived("another"), "of-another-stack"),
        ("moved", key, "elsewhere"),
    ):
        content = signed.signed(facts.encode(), f"{SERVICES}/{named}", by)
        store.write(f"{SERVICES}/{service}", content)
    whole = store.read(f"{SERVICES}/lost")
    for service, harm in (("torn", whole[:-1]), ("plain", b"{}"), ("empty", b"")):
        store.write(f"{SERVICES}/{service}", harm)
    serve.deploy_again(served)
    [(service, arguments, _, packages)] = sent
    assert (service, arguments, packages) == ("lost", ["mine", "--name", "x"], {"pip": ["cowsay"]})
