"""The content of a submission, and the messages for the server's refusals."""

import dataclasses
import json
import re
from contextlib import nullcontext
from functools import partial
from unittest.mock import Mock

import pytest
import yaml

from engine import plan
from tests.git import git as git_in
from trainyard import options
from trainyard.access import user
from trainyard.client import claims, listing, package, preflight, scripts, store, submission
from trainyard.client.dashboard import Dashboard, RefusedError
from trainyard.client.errors import ClientError
from trainyard.client.job_server import Job, Status
from trainyard.client.listing import NEVER_UPLOADED
from trainyard.client.state import ClusterState, RayNode
from trainyard.tracking import run_folder


@pytest.fixture
def script():
    return scripts.find("alexnet")


def test_the_users_environment_is_kept_and_ours_added(tmp_path, script):
    file = tmp_path / "env.yaml"
    file.write_text(
        "pip: [humanize]\nexcludes: [big]\npy_modules: [./mine]\nenv_vars: {A: b, TRAINYARD_RUN: x}"
    )
    env = submission.runtime_env(file, script, "my-run", progress=True)
    assert env["pip"] == ["humanize"]
    assert env["excludes"] == ["big", *NEVER_UPLOADED]
    assert env["py_modules"] == ["./mine", str(scripts.PACKAGE)]
    assert "working_dir" not in env
    assert env["env_vars"]["A"] == "b"
    assert env["env_vars"][run_folder.RUN_VARIABLE] == "my-run"
    assert env["env_vars"][run_folder.PROGRESS_VARIABLE] == "1"
    assert env["config"] == {"eager_install": False}


def test_who_sets_how_ray_installs_is_kept(tmp_path, script):
    file = tmp_path / "env.yaml"
    file.write_text("config: {eager_install: true, setup_timeout_seconds: 900}")
    env = submission.runtime_env(file, script, "r", progress=False)
    assert env["config"] == {"eager_install": True, "setup_timeout_seconds": 900}


def test_a_file_without_values_adds_nothing(tmp_path, script):  # F60
    file = tmp_path / "env.yaml"
    file.write_text("env_vars:\nexcludes:\nconfig:\npy_modules:\nworking_dir:\n")
    env, without = (
        submission.runtime_env(each, script, "r", progress=False) for each in (file, None)
    )
    assert env == without


def test_the_working_folder_of_a_file_is_used_or_refused(tmp_path):  # F60
    file, own = tmp_path / "env.yaml", tmp_path / "own/job.py"
    own.parent.mkdir()
    own.touch()
    file.write_text(f"working_dir: {tmp_path}")
    job = scripts.find("alexnet")
    assert submission.runtime_env(file, job, "r", progress=False)["working_dir"] == str(tmp_path)
    with pytest.raises(ClientError, match=r"has the working_dir .*: name the folder with --wor"):
        submission.runtime_env(file, scripts.find(str(own)), "r", progress=False)
    whole = scripts.find(str(own), str(tmp_path))
    assert submission.runtime_env(file, whole, "r", progress=False)["working_dir"] == str(tmp_path)


def test_the_commit_of_a_checkout(tmp_path):
    git = partial(git_in, tmp_path)
    assert submission.commit(tmp_path) == ""
    git("init", "-q")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-qm", "one")
    assert submission.commit(tmp_path) == git("rev-parse", "HEAD")
    (tmp_path / "a").write_text("2")
    assert submission.commit(tmp_path) == git("rev-parse", "HEAD") + "-dirty"
    other = tmp_path / "other"
    git("worktree", "add", "-q", str(other))  # F58: its .git is a file
    assert submission.commit(other) == plan._sources(other)["commit"] == git("rev-parse", "HEAD")
    assert [entry.name for entry in listing.of_folder(other, NEVER_UPLOADED).files] == ["a"]


def test_how_files_differ_from_the_commit_is_kept_without_secrets(stack, tmp_path, monkeypatch):
    git, place = partial(git_in, tmp_path / "mine"), tmp_path / "mine"
    names = ("deep/a.py", "b.py", "deep/.env", "Pulumi.dev.yaml", "deep/.ssh/known")
    for text in ("one", "two"):
        for name in names:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(f"{text} of {name}\n")
        if text == "one":
            git("init", "-q")
            git("add", "-f", ".")
            git("commit", "-qm", text)
    (place / "new.py").write_text("not tracked")
    made = store.open_store(stack)
    kept = submission._keep_diff(place / "deep", "r", "j", stack)
    assert kept == {"changed": "5", "diff": "code/j.diff"}
    diff = made.read("r/code/j.diff").decode()
    assert "+two of deep/a.py" in diff
    assert "+two of b.py" in diff  # outside of the script's folder
    assert not [name for name in (*names[2:], "not tracked") if name in diff]
    secret = dataclasses.replace(stack, secret_key="two of b.py")
    assert submission._keep_diff(place, "r", "other", secret) == {"changed": "5"}
    (place / "b.py").write_text("x\n" * submission.MOST_DIFF)
    assert submission._keep_diff(place, "r", "other", stack) == {"changed": "5"}
    assert made.folders("r") == ["code"]
    assert not made.get("r/code/other.diff")


@pytest.mark.parametrize(
    ("file", "begin"),
    [
        ("alexnet.py", "alexnet"),
        ("My Job (2).py", "my-job-2"),
        ("_x.Y.py", "x-y"),
        ("\u5b9e\u9a8c.py", "job"),
        ("a" * 100 + ".py", "a" * 30),
    ],
)
def test_a_name_that_nobody_gave_is_a_good_one(file, begin, tmp_path):
    (tmp_path / file).touch()  # F60
    script = scripts.find(str(tmp_path / file))
    names = {submission.default_run_name(script) for _ in range(6)}
    assert len(names) == 6, "two submissions of one second are one run"
    for name in names:
        assert re.fullmatch(rf"{begin}-\d{{8}}-\d{{6}}-[0-9a-f]{{6}}", name)
        assert run_folder.check_name(f"{name}-99999") == f"{name}-99999"


@pytest.mark.parametrize("given", ["a/b", "..", ".", "", "-x", "a b", "a\n", "\u00e9", "a" * 300])
def test_an_id_that_is_no_files_name_is_refused(given, request_):  # F60
    with pytest.raises(ClientError, match=r"submission id .* is not 1 to 128 letters"):
        dataclasses.replace(request_, submission_id=given)
    for good in ("raysubmit_AbC1", "a" * 128, "1.2-b", None):
        dataclasses.replace(request_, submission_id=good)


class Head:
    """Takes a job, after it refused it some times with an error."""

    def __init__(self, error=None, times=1):
        self.errors = [error] * times if error else []
        self.sent = {}
        self.put = []

    def post(self, path, job):
        assert path == "/api/jobs/"
        self.sent = job
        if self.errors:
            raise self.errors.pop()
        return {"submission_id": "raysubmit_1"}


def taking(monkeypatch, head):
    """The head of a stack, once all checks have passed."""
    monkeypatch.setattr(preflight, "run", lambda env, *_: (None, package.packages(env)))
    monkeypatch.setattr(Dashboard, "has", lambda _, path: path in head.put)
    monkeypatch.setattr(claims, "held", lambda *_, **__: nullcontext())
    monkeypatch.setattr(Dashboard, "put", lambda _, path, *__: head.put.append(path))
    monkeypatch.setattr(Dashboard, "post", lambda _, path, job: head.post(path, job))
    return head


@pytest.fixture
def request_(script):
    arguments = ["--images", "/a b"]
    return submission.Request(
        script=script,
        arguments=arguments,
        config=scripts.config(script, arguments),
        run_name="r",
        runtime_env=submission.runtime_env(None, script, "r", progress=False),
        entrypoint={"CPU": 1.0, "TPU": 1.0},
    )


@pytest.mark.parametrize("name", ["conda", "plain"])
def test_a_second_environment_has_other_packages(name, request_, script, stack, monkeypatch):  # B25
    file, head = scripts.JOBS / f"config/runtime/{name}.yaml", taking(monkeypatch, Head())
    monkeypatch.setattr(submission, "check_conda", lambda *_: None)
    env = submission.runtime_env(file, script, "r", progress=False)
    submission.submit(dataclasses.replace(request_, runtime_env=env), stack, force=False)
    sent = {key: head.sent["runtime_env"].get(key) for key in ("conda", "pip")}
    requirements = scripts.JOBS.parent / "requirements"
    conda = (requirements / "conda/environment_cpu.yaml").read_text()
    assert sent["conda"] == {"conda": yaml.safe_load(conda)["name"]}.get(name)
    pins = {line.partition(" ")[0] for line in (requirements / "host.txt").read_text().splitlines()}
    assert {*(sent["pip"] or [])} <= pins  # the versions that all nodes have
    assert len(sent["pip"] or []) == {"plain": 5}.get(name, 0)


def test_a_job_is_sent_with_its_demand(request_, stack, monkeypatch):
    head = taking(monkeypatch, Head())
    submission.submit(request_, stack, force=False)
    started = "python -m trainyard.recorder python -m trainyard.jobs.alexnet"
    assert head.sent["entrypoint"] == f"{started} --images '/a b'"  # F39
    gpu = {"CPU": 1.0, "GPU": 1.0}
    demand = json.loads(head.sent["metadata"]["demand"])
    assert demand == [{"CPU": 1.0, "TPU": 1.0}, gpu]
    # The job decides the same.  A30
    told = json.loads(head.sent["runtime_env"]["env_vars"]["TRAINYARD_NODES"])
    assert options.request(request_.config, told) == [gpu]
    assert head.sent["metadata"]["run"] == "r"
    assert head.sent["metadata"]["job_name"] == f"r ({user.name()})"  # Ray's dashboard shows it
    assert "canary" not in str(head.sent)  # F35
    (module,) = head.sent["runtime_env"]["py_modules"]
    assert head.put == [f"/api/packages/gcs/{module.removeprefix('gcs://')}"]


def test_a_queue_is_told_the_order_and_the_retries_and_none_is_an_error(
    request_, plain, stack, monkeypatch
):
    head = taking(monkeypatch, Head())
    submission.submit(request_, stack, force=False)  # needs no queue
    assert {head.sent["metadata"][each] for each in ("retries", "force")} == {"3", "0"}
    submission.submit(plain, stack, force=True)
    assert {head.sent["metadata"][each] for each in ("retries", "force")} == {"0", "1"}
    order = {"priority": "5", "after": "other", "retries": "1"}
    asked = dataclasses.replace(request_, order=order)
    other = Job(submission_id="raysubmit_2", status=Status.RUNNING, metadata={"run": "other"})
    for version, sent in (({"queue": True}, True), ({}, False)):
        server = Mock(**{"version.return_value": version, "jobs.return_value": [other]})
        monkeypatch.setattr(
            preflight, "run", lambda env, *_, server=server: (server, package.packages(env))
        )
        if sent:
            submission.submit(asked, stack, force=False)
            found = {name: head.sent["metadata"][name] for name in order}
            assert found == order | {"after": "raysubmit_2"}
        else:
            with pytest.raises(ClientError, match="has no queue, and --priority, --after, --re"):
                submission.submit(asked, stack, force=False)


@pytest.fixture
def plain(tmp_path):
    """The request of a script that declares nothing."""
    path = tmp_path / "plain.py"
    path.touch()
    script = scripts.find(str(path))
    env = submission.runtime_env(None, script, "r", progress=False)
    return submission.Request(
        script=script, arguments=[], run_name="r", runtime_env=env, is_plain=True
    )


def options_of(request, stack, monkeypatch):
    head = taking(monkeypatch, Head())
    submission.submit(request, stack, force=False)
    return {name: value for name, value in head.sent.items() if name.startswith("entrypoint_")}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"num_cpus": 1, "num_gpus": 1}),
        ({"CPU": 4.0}, {"num_cpus": 4, "num_gpus": 1}),
        ({"GPU": 0.0}, {"num_cpus": 1}),
        ({"GPU": 0.0, "CPU": 0.0}, {}),
        ({"TPU": 4.0}, {"num_cpus": 1, "num_gpus": 1, "resources": {"TPU": 4.0}}),
    ],
)
def test_a_plain_script_gets_a_cpu_and_a_gpu_of_a_worker(
    given, expected, plain, stack, monkeypatch, capsys
):
    sent = options_of(dataclasses.replace(plain, entrypoint=given), stack, monkeypatch)
    assert sent == {f"entrypoint_{name}": value for name, value in expected.items()}
    where = "with CPU 4, GPU 1:" if "CPU" in given and expected else ""
    said = f"{plain.script.job} runs {where if expected else 'on the head:'}"
    assert said in capsys.readouterr().out


def test_a_driver_that_asks_for_nothing_is_told_that_a_queue_does_not_wait(
    plain, stack, monkeypatch, capsys
):
    script = dataclasses.replace(plain.script, path=plain.script.path.with_name("driver.py"))
    script.path.write_text("import ray\n")
    driver = dataclasses.replace(plain, script=script, is_plain=False)
    for queue in (True, False):
        options_of(driver, dataclasses.replace(stack, queue=queue), monkeypatch)
        assert ("so the queue starts it at once" in capsys.readouterr().out) is queue


def test_a_plain_script_uses_what_there_is(plain, stack, monkeypatch):
    head, cpus, gpu = stack.nodes

    def sent(*nodes, **changes):
        request = dataclasses.replace(plain, **changes)
        return options_of(request, dataclasses.replace(stack, nodes=nodes), monkeypatch)

    cpu = {"entrypoint_num_cpus": 1}
    assert sent(head, cpus) == cpu
    assert sent(head, cpus, dataclasses.replace(gpu, cpus=0.5)) == cpu
    with_gpu = sent(head, cpus, dataclasses.replace(gpu, on_demand=True))
    assert with_gpu == cpu | {"entrypoint_num_gpus": 1}
    assert sent(head) == sent(head, cpus, gpu, is_plain=False) == {}  # E8; its head has no CPU
    assert sent(cpus) == cpu  # a head alone
    # A head with CPUs: Ray would place it there.
    nodes = [
        RayNode(id="a1", address="", is_head=True),
        RayNode(id="b2", address="", is_head=False),
    ]
    monkeypatch.setattr(ClusterState, "nodes", lambda _: nodes)
    off = {"entrypoint_label_selector": {"ray.io/node-id": "!a1"}}
    assert sent(cpus, cpus) == cpu | off
    assert sent(cpus, gpu) == with_gpu
    nodes.clear()  # none can be read
    assert sent(cpus, cpus) == cpu


def test_the_servers_traceback_becomes_one_message(request_, stack, monkeypatch):
    text = "Traceback (most recent call last):\n  File x\nValueError: Job r exists already.\n"
    taking(monkeypatch, Head(RefusedError(400, text)))
    with pytest.raises(ClientError, match=r"the job was not taken: Job r exists already\.;"):
        submission.submit(request_, stack, force=True)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_cluster_whose_nodes_take_no_jobs_yet_is_asked_again(
    request_, stack, monkeypatch, capsys, times
):
    answer = "No available agent to submit job, please try again later."
    taking(monkeypatch, Head(RefusedError(500, answer), times))
    if times < submission.TRIES:
        assert submission.submit(request_, stack, force=True)[1] == "raysubmit_1"
    else:
        with pytest.raises(ClientError, match=r"the job was not taken: .* try again later"):
            submission.submit(request_, stack, force=True)
    said = capsys.readouterr().out.count("no node of the cluster takes jobs yet; asking again")
    assert said == min(times, submission.TRIES - 1)


@pytest.mark.parametrize("answer", [{}, [], {"job_id": "1"}])
def test_an_answer_without_an_id_is_not_a_heads(answer, stack, monkeypatch):  # F39
    monkeypatch.setattr(Dashboard, "post", lambda *_: answer)
    with pytest.raises(ClientError, match=r"the job was not taken: (Key|Type)Error"):
        submission.send(stack, entrypoint="true", metadata={"job": "true"})


def test_nothing_is_sent_when_nothing_can_hold_it(request_, stack, monkeypatch):
    monkeypatch.setattr(preflight, "run", lambda *_: pytest.fail("was sent"))
    request_.entrypoint["TPU"] = 5.0
    with pytest.raises(ClientError, match="asks for CPU 1, TPU 5 on one node"):  # F29
        submission.submit(request_, stack, force=False)


@pytest.mark.parametrize(("file", "line"), [(".gitignore", "*.py"), (".rayignore", "jobs/")])
def test_a_script_that_its_upload_leaves_out_is_refused(file, line, tmp_path):  # F59
    (tmp_path / "jobs").mkdir()
    path = tmp_path / "jobs/own.py"
    path.write_text("")
    script = scripts.find(str(path), str(tmp_path))
    assert submission.runtime_env(None, script, "r", progress=False)["working_dir"]
    (tmp_path / file).write_text(f"{line}\n")
    with pytest.raises(ClientError, match=r"own\.py is left out of the upload of .*let it in"):
        submission.runtime_env(None, script, "r", progress=False)


@pytest.mark.parametrize("needed", [True, False])
@pytest.mark.parametrize("status", [Status.FAILED, Status.SUCCEEDED])
def test_a_head_without_conda_is_told_what_to_install(  # B25
    needed, status, request_, stack, monkeypatch
):
    head = taking(monkeypatch, Head())
    asked = []
    monkeypatch.setattr(preflight, "run", lambda *_: (None, package.packages({})))
    monkeypatch.setattr(
        "trainyard.client.job_log.follow",
        lambda *_: asked.append(head.sent["entrypoint"]) or Job(status=status),
    )
    if needed:
        request_.runtime_env["conda"] = "aims-ray"
    refused = (
        pytest.raises(ClientError, match=r"'dev' has no conda.*install Miniforge.*`pip`")
        if needed and status is Status.FAILED
        else nullcontext()
    )
    with refused:
        submission.submit(request_, stack, force=False)
    assert asked == [submission.CONDA_PROBE] * needed
