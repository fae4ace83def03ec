"""The workflows of .github as a team uses them: run by act, on a bare repository, to a real stack.

act runs each step on this machine, like a self-hosted runner. GitHub's API is a stand-in, and
so are the actions, which act would download.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from node import folders
from node.supervisor import Supervisor
from tests import go_tools, pages, quick
from tests.fakes import github as fake
from tests.git import git
from tests.ports import free_ports
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[3]
WORKFLOWS = ROOT / ".github" / "workflows"
Event = dict[str, Any]  # what GitHub says of one
# The actions' effects with their inputs; RUNNER_FOLDER and ARTIFACTS are this test's.
CHECKOUT = """\
cd "$RUNNER_FOLDER"
git fetch --quiet origin
git checkout --quiet --force --detach "$GITHUB_SHA"
rm -rf "$GITHUB_WORKSPACE"
ln -s "$RUNNER_FOLDER" "$GITHUB_WORKSPACE"
"""
UPLOAD = """\
mkdir -p "$ARTIFACTS/$GITHUB_RUN_ID"
rm -rf "$ARTIFACTS/$GITHUB_RUN_ID/${{ inputs.name }}"
cp -r "${{ inputs.path }}" "$ARTIFACTS/$GITHUB_RUN_ID/${{ inputs.name }}"
"""
DOWNLOAD = """\
rm -rf "${{ inputs.path }}"
cp -r "$ARTIFACTS/${{ inputs.run-id }}/${{ inputs.name }}" "${{ inputs.path }}"
"""
ACTIONS = {
    "actions/checkout": CHECKOUT,
    "actions/upload-artifact": UPLOAD,
    "actions/download-artifact": DOWNLOAD,
    "aws-actions/configure-aws-credentials": "false\n",
    "astral-sh/attest-action": "false\n",
}
RUN_SECONDS = 240
(BY_HAND,) = pages.read_by(__file__)


def test_the_workflows_are_clean(go_program):
    subprocess.run([go_program("actionlint")], cwd=ROOT, check=True)
    zizmor = Path(sys.executable).parent / "zizmor"
    subprocess.run([zizmor, "--offline", "--quiet", WORKFLOWS], check=True)


def _used() -> set[str]:
    text = "".join(each.read_text() for each in WORKFLOWS.glob("*.yml"))
    return set(re.findall(r"uses: (\S+)", text))


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a runner and all its processes, as the loss of its machine does."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for each in psutil.Process(process.pid).children(recursive=True):
            each.kill()
    process.kill()
    process.wait()


class Runner:
    """Runs workflows on this machine, in one checkout.

    Attributes:
        github: the API.
        events: the checkout whose commit and workflows an event is about.
        folder: the checkout that jobs work in.
        passphrase: of the states.
        said: act's last output.
    """

    def __init__(
        self, act: Path, base: Path, github: fake.GitHub, *, events: Path, folder: Path
    ) -> None:
        self.act, self.base, self.github = act, base, github
        self.events, self.folder = events, folder
        self.variables = {"STACKS": '["test"]', "PULUMI_BACKEND_URL": f"file://{base}/backend"}
        self.log = base / "log"
        self.passphrase, self.said = "x", ""
        self.run_id = 0
        for name, script in ACTIONS.items():
            place = base / "actions" / name
            place.mkdir(parents=True)
            inputs = {key: {"default": ""} for key in ("name", "path", "run-id")}
            step = {"shell": "bash", "run": f"set -e\n{script}"}
            made = {"name": name, "inputs": inputs, "runs": {"using": "composite", "steps": [step]}}
            (place / "action.yml").write_text(yaml.safe_dump(made))

    def command(self, workflow: str, event: str, body: Event, **inputs: str) -> list[str]:
        """The command that runs a workflow for an event."""
        self.run_id += 1
        file = self.base / "event.json"
        file.write_text(json.dumps(body | {"inputs": inputs}))
        environment = {
            "ARTIFACTS": str(self.base / "artifacts"),
            "GITHUB_API_URL": self.github.url,
            "GITHUB_REPOSITORY": fake.REPOSITORY,
            "GITHUB_RUN_ID": str(self.run_id),
            "RUNNER_FOLDER": str(self.folder),
            "XDG_CACHE_HOME": str(
                go_tools.CACHE.parent
            ),  # with the store's program; act itself has another
        }
        secrets = {"GITHUB_TOKEN": fake.TOKEN, "PULUMI_CONFIG_PASSPHRASE": self.passphrase}
        made = [str(self.act), event, "--directory", str(self.events)]
        made += ["--workflows", f".github/workflows/{workflow}.yml", "--eventpath", str(file)]
        made += ["--platform", "ubuntu-latest=-self-hosted", "--no-skip-checkout"]
        made += [f"--env={key}={value}" for key, value in environment.items()]
        made += [f"--var={key}={value}" for key, value in self.variables.items()]
        made += [f"--secret={key}={value}" for key, value in secrets.items()]
        made += [f"--input={key}={value}" for key, value in inputs.items()]
        for used in _used():
            folder = self.base / "actions" / used.partition("@")[0]
            made.append(f"--local-repository={used}={folder}")
        return made

    def start(
        self, workflow: str, event: str, body: Event, **inputs: str
    ) -> subprocess.Popen[bytes]:
        """Start a workflow; its output goes to the log."""
        with self.log.open("wb") as log:
            return subprocess.Popen(
                self.command(workflow, event, body, **inputs),
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def run(self, workflow: str, event: str, body: Event, **inputs: str) -> bool:
        """Run a workflow; whether it succeeded."""
        process = self.start(workflow, event, body, **inputs)
        try:
            return process.wait(RUN_SECONDS) == 0
        finally:
            end(process)
            self.said = self.log.read_text()

    def environment(self) -> dict[str, str]:
        kept = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("PULUMI_", "GITHUB_", "PYTEST_"))
        }
        return kept | {"XDG_CACHE_HOME": str(self.base / "cache")}


class Forge:
    """A bare repository, people who work on it, and the runner that keeps the stack.

    Attributes:
        team: the checkout of its people.
    """

    def __init__(self, act: Path, base: Path, stack: Any, github: fake.GitHub) -> None:
        self.stack, self.github, self.base = stack, github, base
        self.team, project = base / "team", stack.project
        # A line a setting, so that changes of two merge.
        settings = project / "Pulumi.test.yaml"
        self.settings: dict[str, Any] = yaml.safe_load(settings.read_text())["config"]
        settings.write_text(yaml.safe_dump({"config": self.settings}))
        # As in tests/quick.py, for engines that tests start.
        crypto = project / "engine" / "crypto.py"
        text, rounds = crypto.read_text(), f"ROUNDS = {quick.ROUNDS}\n"
        crypto.write_text(re.sub(r"^ROUNDS = .*\n", rounds, text, flags=re.MULTILINE))
        bare = base / "origin.git"
        git(project, "init", "--quiet", "--initial-branch", "main")
        git(project, "add", "--all")
        git(project, "commit", "--quiet", "--message", "first")
        git(base, "clone", "--quiet", "--bare", str(project), str(bare))
        git(project, "remote", "add", "origin", str(bare))
        git(base, "clone", "--quiet", str(bare), str(self.team))
        self.runner = Runner(act, base, github, events=self.team, folder=project)
        self.runner.passphrase = stack.environment["PULUMI_CONFIG_PASSPHRASE"]

    @property
    def said(self) -> str:
        return self.runner.said

    def git(self, *arguments: str) -> str:
        return git(self.team, *arguments)

    def change(self, branch: str, **settings: Any) -> None:
        """Push a branch that changes the stack's settings."""
        self.git("checkout", "--quiet", "-b", branch, "main")
        changed = self.settings | {f"trainyard:{key}": value for key, value in settings.items()}
        (self.team / "Pulumi.test.yaml").write_text(yaml.safe_dump({"config": changed}))
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", branch)
        self.git("push", "--quiet", "origin", branch)

    def preview(self, number: int, branch: str, repository: str = fake.REPOSITORY) -> bool:
        """Run the workflows of a pull request, on its merge with main."""
        self.git("checkout", "--quiet", "--detach", "main")
        base = self.git("rev-parse", "HEAD")
        self.git("merge", "--quiet", "--no-ff", "--message", "merge", branch)
        self.git("push", "--quiet", "--force", "origin", f"HEAD:refs/pull/{number}/merge")
        git(self.runner.folder, "fetch", "--quiet", "origin", f"refs/pull/{number}/merge")
        head = {"repo": {"full_name": repository}, "ref": branch}
        pull = {"number": number, "head": head, "base": {"ref": "main", "sha": base}}
        good = self.runner.run(
            "preview", "pull_request", {"action": "opened", "pull_request": pull}
        )
        name = f"plan-test-{number}"
        if (self.base / "artifacts" / str(self.runner.run_id) / name).exists():
            self.github.add_artifact(name, self.runner.run_id)
        return good

    def merge(self, number: int, branch: str) -> dict[str, Any]:
        """Merge a pull request into main as one commit; the event of that push."""
        self.git("checkout", "--quiet", "main")
        before = self.git("rev-parse", "HEAD")
        self.git("merge", "--quiet", "--squash", branch)
        self.git("commit", "--quiet", "--message", f"{branch} (#{number})")
        self.git("push", "--quiet", "origin", "main")
        after = self.git("rev-parse", "HEAD")
        self.github.merged[after] = number
        return {"ref": "refs/heads/main", "before": before, "after": after}


@pytest.fixture
def forge(go_program, declare, store_program) -> Iterator[Forge]:
    act = go_program("act")
    base = Path(tempfile.mkdtemp(prefix="ty", dir="/tmp"))
    stack = declare(base, copied=True)
    try:
        with fake.serve() as github:
            yield Forge(act, base, stack, github)
        if stack.backend.exists("trainyard", "test"):
            stack.engine("destroy", "--yes")
    finally:
        stack.kill()
        shutil.rmtree(base, ignore_errors=True)


@pytest.fixture
def stub(go_program, tmp_path) -> Iterator[Runner]:
    """Runs workflows in a repository whose make targets only record their calls."""
    folder = tmp_path / "checkout"
    shutil.copytree(WORKFLOWS, folder / ".github" / "workflows")
    (folder / "Makefile").write_text("%:\n\t@echo called: $@ $(NUMBER)\n")
    git(folder, "init", "--quiet", "--initial-branch", "main")
    git(folder, "remote", "add", "origin", ".")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "first")
    with fake.serve() as github:
        yield Runner(go_program("act"), tmp_path, github, events=folder, folder=folder)


def pull(*labels: str, state: str = "open", repository: str = fake.REPOSITORY) -> dict[str, Any]:
    named = [{"name": label} for label in labels]
    head = {"repo": {"full_name": repository}}
    return {"number": 8, "state": state, "labels": named, "head": head, "base": {"sha": "HEAD"}}


@pytest.mark.parametrize(
    ("action", "label", "of", "called"),
    [
        ("labeled", "stack", pull("stack"), "review-up 8"),
        ("synchronize", "", pull("bug", "stack"), "review-up 8"),
        ("unlabeled", "bug", pull("stack"), "review-up 8"),
        ("unlabeled", "stack", pull("bug"), "review-down 8"),
        ("closed", "", pull("stack", state="closed"), "review-down 8"),
        ("labeled", "stack", pull("stack", state="closed"), "review-down 8"),
        ("labeled", "bug", pull("bug"), ""),
        ("labeled", "stack", pull("stack", repository="stranger/cluster"), ""),
    ],
)
def test_a_stack_goes_with_its_label_and_its_pull_request(stub, action, label, of, called):
    body = {"action": action, "label": {"name": label}, "pull_request": of}
    assert stub.run("review", "pull_request", body), stub.said
    assert re.findall(r"called: (review-.*?)\s*$", stub.said, re.MULTILINE) == (
        [called] if called else []
    )


@pytest.mark.parametrize(
    ("workflow", "event"),
    [("deploy", "push"), ("drift", "schedule"), ("reap", "schedule")],
)
def test_nothing_is_done_before_there_are_stacks(stub, workflow, event):
    stub.variables["STACKS"] = ""
    assert stub.run(workflow, event, {}), stub.said
    assert "called:" not in stub.said


def test_a_fork_gets_no_secret_and_is_told(stub):
    of = pull(repository="stranger/cluster")
    assert stub.run("preview", "pull_request", {"action": "opened", "pull_request": of})
    assert "no preview::A fork's pull request gets no secret" in stub.said
    assert "called:" not in stub.said
    assert stub.github.comments == {}


@pytest.mark.timeout(900)  # seven runs of workflows
def test_from_a_pull_request_to_a_cluster_and_back(forge):
    github, stack = forge.github, forge.stack
    # Two pull requests are looked at; one is merged first, and so slips in before the other.
    forge.change("begin", agentPort=free_ports(1)[0])
    forge.change("grow", workers=2)
    assert forge.preview(1, "begin"), forge.said
    assert forge.preview(2, "grow"), forge.said
    (comment,) = github.comments[2]
    assert comment["body"].startswith("<!-- trainyard: preview of test -->\n## test: ")
    assert "to create" in comment["body"]
    assert forge.runner.run("deploy", "push", forge.merge(1, "begin")), forge.said
    assert "succeeded" in forge.said  # the job after it
    # A worker is stopped by hand.
    daemon = Supervisor(folder=stack.folder, mark=folders.read_mark(stack.folder))
    with daemon._rpc() as supervisord:
        supervisord.stopProcess("ray-worker-0")
    assert forge.runner.run("drift", "schedule", {}), forge.said
    (issue,) = github.issues
    assert (issue["title"], issue["state"]) == ("Drift of test", "open")
    assert "is stopped" in issue["body"]
    assert github.started == []
    forge.runner.variables["REPAIR"] = '["test"]'
    assert forge.runner.run("drift", "schedule", {}), forge.said
    assert github.started == [("deploy.yml", "main", {"stack": "test"})]
    # The merge would now do something else than what was reviewed.
    merged = forge.merge(2, "grow")
    before = stack.resources()
    assert not forge.runner.run("deploy", "push", merged)
    assert "plan.json was made for another commit" in forge.said
    assert stack.resources() == before
    # By hand: that runner is killed in the middle, and the next one goes on.
    process = forge.runner.start("deploy", "workflow_dispatch", {}, stack="test")
    try:
        state = stack.backend.stack_file("trainyard", "test")
        wait_for("a step", lambda: "pending_operations" in state.read_text(), RUN_SECONDS)
    finally:
        end(process)
    assert forge.runner.run("deploy", "workflow_dispatch", {}, stack="test"), forge.said
    assert "was interrupted" in forge.said
    assert "succeeded" in forge.said
    # The head may hear of its nodes a little later.
    wait_for("no drift", lambda: stack.drift().returncode == 0, 90)
    stack.terminal("prod").run(BY_HAND)  # as another forge's runner does it
    assert forge.runner.run("drift", "schedule", {}), forge.said
    assert issue["state"] == "closed"
