"""`train` against a real Ray and a real MinIO, with scripts that take no time to train."""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from node.idle_watch import IdleLimits, Ray, look, work
from tests import ran
from tests.waiting import wait_for

pytestmark = pytest.mark.integration

REPOSITORY = Path(__file__).resolve().parents[3]
ARGUMENTS = ["a b", "$(touch pwn)", "'", '"', ";", "ü"]
SUBMITTED = re.compile(r"Job '(?P<id>\S+)' submitted successfully")
COUNTING = """
import time
for i in range(600):
    print(f"line {i}", flush=True)
    time.sleep(0.1)
"""


@pytest.fixture
def script(tmp_path) -> Callable[[str], str]:
    """Writes a job script and returns its path."""
    folder = tmp_path / "work"
    folder.mkdir()

    def write(text: str) -> str:
        (folder / "job.py").write_text(text)
        return str(folder / "job.py")

    return write


@pytest.fixture(scope="module")
def hello(cluster, tmp_path_factory) -> subprocess.CompletedProcess[str]:
    """A job that prints its arguments, and succeeds."""
    path = tmp_path_factory.mktemp("hello") / "job.py"
    path.write_text("import json, sys; print('hello', json.dumps(sys.argv[1:]))")
    options = ["--name", "hello", "--submission-id", "taken", "--", *ARGUMENTS]
    result: subprocess.CompletedProcess[str] = cluster.train("submit", str(path), *options)
    assert result.returncode == 0, result.stdout + result.stderr
    return result


def submitted(out: str) -> str:
    found = SUBMITTED.search(out)
    assert found, out
    return found["id"]


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """Reads a process's output up to the line that holds a text; pytest-timeout is the bound."""
    seen = ""
    assert process.stdout is not None
    for line in process.stdout:
        seen += line
        if text in line:
            return seen
    raise AssertionError(f"{text!r} was not printed: {seen}")


def read_rest(process: subprocess.Popen[str]) -> str:
    """The rest of a process's output; not by `communicate`, which leaves out buffered text."""
    assert process.stdout is not None
    rest = process.stdout.read()
    process.wait()
    return rest


def test_a_job_that_succeeds(cluster, hello):
    lines = hello.stdout.splitlines()
    assert lines[0] == f"Job submission server address: {cluster.outputs['dashboardUrl']}"  # A32
    assert re.search(r"Uploading package gcs://_ray_pkg_\w+\.zip", hello.stdout)  # A32
    assert f"hello {json.dumps(ARGUMENTS)}" in lines  # F39
    assert submitted(hello.stdout) == "taken"
    assert "Job 'taken' succeeded" in lines  # A38
    assert any("job.py runs with CPU 1: change that with --ent" in line for line in lines)
    nodes = cluster.api("/api/v0/nodes?detail=1")["data"]["result"]["result"]
    [head] = [node["node_id"] for node in nodes if node["is_head_node"]]
    assert cluster.jobs()["taken"]["driver_node_id"] != head
    # The marker of the store's check is gone; runs of other tests have summaries.
    assert {key.split("/")[1] for key in cluster.keys(".trainyard")} <= {"claims", "runs"}


PLAIN = """
import os, pathlib, sys, traceback, ray, trainyard
for step in range(30):
    trainyard.log({"score/a": step / 10}, step=step)
@ray.remote
def elsewhere():
    trainyard.log(there=7, step=29)
ray.get(elsewhere.remote())
pathlib.Path(os.environ["TRAINYARD_OUTPUT"], "model.txt").write_text("weights")
pathlib.Path("out.txt").write_text("made in the working folder")
print("so far", flush=True)
try:
    {}["key"]
except KeyError:
    traceback.print_exc()
sys.exit(3)
"""


def test_a_plain_script_that_fails_is_a_run(cluster, script, tmp_path):
    result = cluster.train("submit", script(PLAIN), "--name", "plain")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "kept model.txt, out.txt: train pull plain" in result.stdout
    # The user's own lines and paths, once; what Ray says before them is left out.
    assert re.search(r'^so far\n(Traceback .*)\n  File "job.py", line', result.stdout, re.MULTILINE)
    assert result.stdout.count("Traceback") == 1
    assert "INFO job_manager" not in result.stdout + result.stderr
    assert "error: exit code 3: KeyError: 'key' (job.py, line 13)\n" in result.stderr
    last = cluster.done("logs", "plain", "--tail", "2").splitlines()
    assert last == ["KeyError: 'key'", "kept model.txt, out.txt: train pull plain"]
    file = tmp_path / "whole.log"
    cluster.done("logs", "plain", "--download", str(file))
    assert "INFO job_manager" in file.read_text().splitlines()[0]
    shown = cluster.done("show", "plain")
    said = re.compile(r"^job +FAILED \(exit code 3\), \d+ s, by .*python job.py$", re.MULTILINE)
    assert said.search(shown), shown
    assert shown.splitlines()[-1].split("\t") == ["29", "2.9", "7"]  # step, score/a, there
    rows = {row["run"]: row for row in json.loads(cluster.done("runs", "--json"))}
    found = rows["plain"]
    assert (found["job"], found["figures"]) == ("FAILED", {"score/a": 2.9, "there": 7})
    cluster.done("pull", "plain", "--to", str(tmp_path / "here"))
    output = tmp_path / "here" / "plain" / "output"
    texts = {path.name: path.read_text() for path in output.iterdir()}
    assert texts == {"model.txt": "weights", "out.txt": "made in the working folder"}
    # The head is gone: the store has the log.
    away = tmp_path / "outputs.json"
    away.touch(0o600)
    away.write_text(json.dumps(cluster.outputs | {"dashboardUrl": "http://127.0.0.1:9"}))
    env = cluster.env | {"TRAINYARD_OUTPUTS": str(away)}
    assert "so far\n" in cluster.done("logs", "plain", env=env)
    assert cluster.train("logs", "no-such", env=env).returncode == 1


USING = """
import os, time, ray
@ray.remote(num_cpus=1)
def use():
    held = bytearray(os.urandom(200 * 2**20))
    until = time.process_time() + 8
    while time.process_time() < until:
        sum(range(10**5))
    return len(held)
ray.get([use.remote(), use.remote()])
"""


def test_a_run_has_what_its_ray_workers_and_its_machine_used(cluster, script, tmp_path):
    result = cluster.train("submit", script(USING), "--name", "using")
    assert result.returncode == 0, result.stdout + result.stderr
    rows = json.loads(cluster.done("show", "using", "--json"))["usage"]
    peak = {name: max(row.get(name, 0) for row in rows) for name in rows[-1]}
    assert 0.2 < peak["CPU"] < 3  # two workers, on a machine that has other work
    assert 400 * 2**20 < peak["memory"] < 1600 * 2**20
    # The head and the worker are one machine, whose memory has room for the job's.
    assert {name for name in peak if name.endswith("CPU")} == {"CPU", "head CPU"}
    assert peak["head memory"] < peak["head memory size"]
    shown = cluster.done("show", "using", "--usage")
    assert re.search(r"^used +at most CPU \d\.\d, memory \d\.\d\d GiB$", shown, re.MULTILINE), shown
    assert re.search(r"^head memory\t\d+\.\d\d GiB\t", shown, re.MULTILINE), shown
    cluster.done("pull", "using", "--to", str(tmp_path / "here"))
    [file] = (tmp_path / "here/using/usage").iterdir()
    assert len(file.read_text().splitlines()) == len(rows)
    [machine] = [row for row in cluster.done("watch").splitlines() if row.startswith("head, ")]
    assert machine.count(" GiB") == 2  # memory, free disk


API = """
import sys, trainyard
done = trainyard.submit(sys.argv[1], ["9"], name="from-python")
assert done["status"] == "SUCCEEDED", done
assert trainyard.runs()[0]["run"] == "from-python"
assert trainyard.show("from-python")["metrics"][-1]["n"] == 9
assert "read 9" in trainyard.logs(done["job"])
assert (trainyard.pull("from-python", sys.argv[2]) / "logs").is_dir()
print(trainyard.stop("from-python"))
"""


def test_python_has_what_the_commands_do(cluster, script, tmp_path):
    path = script("import sys, trainyard; trainyard.log(n=int(sys.argv[1])); print('read', 9)")
    command = [sys.executable, "-c", API, path, str(tmp_path)]
    said = ran.output(command, env=cluster.env, cwd=REPOSITORY, timeout=300)
    assert "read 9\n" in said  # followed
    assert said.splitlines()[-1].endswith("has ended already: SUCCEEDED")


def test_the_edit_in_the_checkout_is_what_runs(cluster, tmp_path):
    for name in ("training", "trainyard"):
        shutil.copytree(REPOSITORY / name, tmp_path / name, symlinks=True)
    job = tmp_path / "training" / "fresh.py"
    for word in ("first", "second"):
        job.write_text(
            "from trainyard import fresh_helper; from trainyard.tracking import run_folder\n"
            "if __name__ == '__main__': print(fresh_helper.WORD, run_folder.CONFIG)\n"
        )
        (tmp_path / "trainyard" / "fresh_helper.py").write_text(f"WORD = {word!r}\n")
        result = cluster.train("submit", "fresh", cwd=tmp_path)
        assert f"{word} config.json" in result.stdout.splitlines(), result.stderr


def test_no_secret_is_uploaded_shown_or_logged(cluster, script):  # F30 F35
    path = script(
        "import pathlib\n"
        "for p in sorted(pathlib.Path().rglob('*')):\n"
        "    if p.is_file(): print('file', p)\n"
    )
    folder = Path(path).parent
    hidden = [".pulumi/state.json", "Pulumi.dev.yaml", "a.pem", "id_rsa", ".git/config", ".env"]
    for name in hidden:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("private")
    shutil.copy(cluster.outputs_file, folder / "outputs.json")
    result = cluster.train("submit", path, "--name", "hunt")
    assert result.returncode == 0, result.stderr
    files = [line for line in result.stdout.splitlines() if line.startswith("file ")]
    assert files == ["file job.py"]
    job = cluster.jobs()[submitted(result.stdout)]
    shown = json.dumps(job) + result.stdout + result.stderr
    for secret in (cluster.outputs["rayToken"], cluster.outputs["secretKey"]):
        assert secret not in shown
    assert set(job["runtime_env"]["env_vars"]) == {
        "TRAINYARD_RUN",
        "TRAINYARD_GIT_COMMIT",
        "TRAINYARD_PROGRESS",
    }


@pytest.mark.usefixtures("stopping")
def test_ctrl_c_lets_go_and_the_job_goes_on(cluster, script):
    process = cluster.popen("submit", script(COUNTING), "--name", "counting")
    try:
        out = read_until(process, "line 3")
        process.send_signal(signal.SIGINT)
        rest = read_rest(process)
    finally:
        process.kill()
    job_id = submitted(out)
    assert process.returncode == 130, rest  # B18 F28
    assert re.search(rf"train logs -f {job_id}\b.*; stop it: .*train stop {job_id}\b", rest)
    assert cluster.jobs()[job_id]["status"] == "RUNNING"

    # F50: what the idle watch reads of use, where it is bounded.
    ray = Ray(cluster.outputs["dashboardUrl"], (cluster.folder / "token").read_text())
    running = [f"job {job_id} is RUNNING"]
    for bounds, counts in (
        (IdleLimits(), running),
        (IdleLimits(0.001), running),
        (IdleLimits(99_999, 99), []),
    ):
        counted = partial(work, ray, bounds)
        # A node that has just begun has yet to report its use, and its first figure is 0.
        wait_for(f"{counts} of {bounds}", lambda: look({"": counted})[:1] == counts, 30)  # noqa: B023

    again = cluster.popen("logs", "-f", "counting")  # by the run's name
    try:
        seen = read_until(again, "line 20\n")
        second = cluster.train("submit", script("x"), "--name", "counting")
        stop = cluster.train("stop", job_id)
        rest = read_rest(again)
    finally:
        again.kill()
    assert second.returncode == 1  # a run is trained by one job at a time
    assert f"run 'counting' is being trained by job {job_id}" in second.stderr
    assert f"job {job_id}: STOPPED" in stop.stdout  # B19
    wait_for("its record", lambda: "STOPPED (exit code -15)" in cluster.done("show", "counting"))
    assert again.returncode == 1
    assert f"Job '{job_id}' was stopped" in rest
    numbers = [int(n) for n in re.findall(r"^line (\d+)$", seen + rest, re.MULTILINE)]
    assert numbers == list(range(len(numbers)))  # F28: every line once
    log = cluster.train("logs", job_id).stdout
    assert log.count("line 20\n") == 1  # readable after the stop
    assert "has ended already: STOPPED" in cluster.train("stop", job_id).stdout


def test_a_store_that_is_not_to_be_used_stops_the_job(cluster, script):
    path = cluster.write_outputs("broken.json", secretKey="wrong-wrong-wrong")
    before = len(cluster.jobs())
    result = cluster.train("submit", script("print('ran')"), "--outputs", str(path))
    assert result.returncode == 1  # F24
    assert "SignatureDoesNotMatch" in result.stderr
    assert result.stderr.count("\n") == 1
    assert len(cluster.jobs()) == before


@pytest.mark.parametrize("token", ["wrong", ""])
def test_a_token_that_the_cluster_refuses_stops_the_job(token, cluster, script):
    path = cluster.write_outputs("broken.json", rayToken=token)
    result = cluster.train("submit", script("print('ran')"), "--outputs", str(path))
    assert result.returncode == 1
    assert re.search(r"refuses the token of the output rayToken \(40[13]\)", result.stderr)
    assert "Traceback" not in result.stderr


def test_ray_settings_of_the_user_do_not_lead_elsewhere(cluster):
    env = cluster.env | {
        "RAY_ADDRESS": "http://127.0.0.1:9",
        "RAY_API_SERVER_ADDRESS": "http://127.0.0.1:9",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "another",
    }
    assert cluster.train("list", env=env).returncode == 0


def test_a_terminal_shows_a_bar_that_moves(cluster, script):
    path = script(
        "import os\nfrom trainyard.report.progress import Batches, print_record\n"
        "print('asked', os.environ['TRAINYARD_PROGRESS'])\n"
        "for i in (1, 2): print_record(Batches('epoch 1/1', i, 2, 1.0))\n"
        "print('done')\n"
    )
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "trainyard.client", "submit", path]
    process = subprocess.Popen(
        command, env=cluster.env, cwd=REPOSITORY, stdout=follower, stderr=subprocess.STDOUT
    )
    os.close(follower)
    seen = b""
    try:
        while chunk := _read(leader):
            seen += chunk
        assert process.wait(10) == 0, seen
    finally:
        process.kill()
        process.wait()
        os.close(leader)
    text = seen.decode().replace("\r\n", "\n")
    assert "asked 1" in text  # A33: watched
    assert (
        "\r\x1b[2K[########################] epoch 1/1 batch 2/2 1.0 batches/s\r\x1b[2Kdone\n"
        in text
    )


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # how Linux says that the other side is closed
        return b""


def write_wheel(folder: Path, word: str) -> Path:
    """A wheel of one module, `thing`, with a word."""
    path = folder / "thing-1.0-py3-none-any.whl"
    about = "thing-1.0.dist-info"
    files = {
        "thing.py": f"WORD = {word!r}\n",
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
        wheel.writestr(f"{about}/RECORD", "".join(f"{name},,\n" for name in files))
    return path


def test_what_a_user_has_changed_or_named_like_ours_is_what_runs(  # F59 F60
    cluster, script, tmp_path
):
    path = script(
        "import os, ray, training, client\n"
        "@ray.remote\n"
        "def there():\n"
        "    import access, client, thing, training\n"
        "    names = (training, client, access, thing)\n"
        "    return [name.WORD for name in names], os.access('tool', os.X_OK)\n"
        "print('seen', training.WORD, client.WORD, *ray.get(there.remote()))\n"
    )
    for name in ("training.py", "client.py", "access/__init__.py"):
        module = Path(path).parent / name
        module.parent.mkdir(exist_ok=True)
        module.write_text("WORD = 'theirs'\n")
    tool, env = Path(path).with_name("tool"), tmp_path / "env.yaml"
    tool.touch(0o644)
    for mode, word in ((0o644, "first"), (0o755, "second")):  # a mode and a wheel of one name
        tool.chmod(mode)
        env.write_text(f"py_modules: ['{write_wheel(tmp_path, word)}']\n")
        result = cluster.train("submit", path, "--runtime-env", str(env))
        words = ["theirs", "theirs", "theirs", word]
        said = f"seen theirs theirs {words} {mode == 0o755}"
        assert said in result.stdout.splitlines(), result.stdout + result.stderr
