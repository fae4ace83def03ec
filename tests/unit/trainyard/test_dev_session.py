"""Patches of files, a node's copy of the code, and the warm process, without a cluster."""

import itertools
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.waiting import wait_for
from tests.warm import Warm
from trainyard.dev_session import __main__ as session
from trainyard.dev_session import debugger, patches, records, trees, worker

BLOCK = patches.BLOCK_BYTES


def literal_bytes(patch):
    return sum(len(part) for part in patch.parts if isinstance(part, bytes))


def patched(old, new):
    return patches.patch(new, patches.blocks(old), executable=False)


@pytest.fixture(scope="module")
def large():
    return random.Random(1).randbytes(100 * BLOCK + 77)


@pytest.mark.parametrize("at", [0, 5, 50 * BLOCK, 100 * BLOCK + 76])
@pytest.mark.parametrize("edit", ["in place", "insert", "delete"])
def test_an_edit_of_a_byte_sends_two_blocks_at_most(large, at, edit):  # P17
    new = {
        "in place": large[:at] + b"!" + large[at + 1 :],
        "insert": large[:at] + b"!" + large[at:],
        "delete": large[:at] + large[at + 1 :],
    }[edit]
    patch = patched(large, new)
    assert patch.content(large) == new
    assert literal_bytes(patch) <= 2 * BLOCK


def test_edits_far_apart_send_their_blocks_only(large):
    new = bytearray(large)
    for at in (3, 40 * BLOCK, 99 * BLOCK):
        new[at] ^= 1
    assert literal_bytes(patched(large, bytes(new))) <= 4 * BLOCK


@given(st.data())
def test_a_patch_makes_the_new_file(data):
    pieces = st.lists(st.integers(0, 5), max_size=8)
    blocks_of = [bytes([i]) * (BLOCK // 2 + 7 * i) for i in range(6)]
    old, new = (b"".join(blocks_of[i] for i in data.draw(pieces)) for _ in "ab")
    message = patches.pack({"kind": "run"}, {"a": patched(old, new), "b": None})
    header, changes = patches.unpack(message)
    assert header == {"kind": "run"}
    assert changes["b"] is None
    assert changes["a"].content(old) == new


def test_a_patch_for_another_file_is_refused(large):
    with pytest.raises(patches.PatchError, match="began with a different file"):
        patched(large, b"!" + large).content(large[1:])


@pytest.fixture
def tree(tmp_path):
    unpacked = tmp_path / "working_dir_files" / "pkg"
    unpacked.mkdir(parents=True)
    (unpacked / "job.py").write_text("WORD = 1\n")
    made = trees.Tree(tmp_path / trees.SESSIONS / "aa", {trees.WORKING_DIR: unpacked})
    made.place()
    yield made
    made.remove()


def new_file(text):
    return patches.patch(text.encode(), None, executable=False)


def test_files_change_in_the_copy_and_not_in_what_ray_unpacked(tree):
    tree.update({"tree/job.py": new_file("WORD = 2\n"), "tree/new/x.py": new_file("")})
    assert (tree.folder / "tree" / "job.py").read_text() == "WORD = 2\n"
    assert (tree.folder / "tree" / "new" / "x.py").exists()
    assert (tree.roots["tree"] / "job.py").read_text() == "WORD = 1\n"
    tree.update({"tree/job.py": None})
    assert not (tree.folder / "tree" / "job.py").exists()


def test_byte_code_of_the_same_second_and_size_is_not_taken(tree):
    def word():
        command = [sys.executable, "-c", "import job; print(job.WORD)"]
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        return subprocess.check_output(command, cwd=tree.folder / "tree", env=env, text=True)

    for value in ("2", "3"):
        tree.update({"tree/job.py": new_file(f"WORD = {value}\n")})
        assert word() == f"{value}\n"
    assert list((tree.folder / "tree" / "__pycache__").iterdir())


@pytest.mark.parametrize("name", ["tree/../../x", "other/x", "x"])
def test_no_file_outside_is_written(tree, name):
    with pytest.raises(patches.PatchError, match="outside"):
        tree.update({name: new_file("")})


def test_copies_that_nobody_uses_are_removed(tree):
    left = tree.folder.parent / "bb"
    left.mkdir()
    again = trees.Tree(tree.folder.parent / "cc", tree.roots)
    again.place()
    assert not left.exists()
    assert (tree.folder / "tree").exists()  # in use
    again.remove()
    assert not again.folder.exists()


def test_a_process_imports_from_the_copy(tree, monkeypatch):
    unpacked = str(tree.roots["tree"])
    monkeypatch.chdir(unpacked)
    monkeypatch.setattr(sys, "path", ["", unpacked])
    monkeypatch.setenv("PYTHONPATH", f"{unpacked}:/other")
    tree.enter()
    copy = str(tree.folder / "tree")
    assert (sys.path, os.environ["PYTHONPATH"], str(Path.cwd())) == (
        ["", copy],
        f"{copy}:/other",
        copy,
    )


def test_a_users_hook_runs_after_ours():
    text = json.dumps({"runtime_env": {worker.HOOK: "theirs.hook", "env_vars": {"A": "1"}}})
    made = json.loads(worker.job_configuration(text, "aa"))["runtime_env"]
    assert made[worker.HOOK] == f"{worker.__name__}.set_up"
    assert made["env_vars"] == {
        "A": "1",
        worker.SESSION_VARIABLE: "aa",
        worker.NEXT_VARIABLE: "theirs.hook",
    }


def test_a_record_is_a_line_of_its_own(capsys):
    fields = {"run": 2, "code": 1, "seconds": 0.5}
    records.print_record(records.ENDED, **fields)
    line = capsys.readouterr().out
    assert records.parse(line.strip()) == {"event": "ended"} | fields
    assert records.parse("session: of parliament") is None
    assert records.parse("session: [1]") is None


def test_a_debuggers_key_is_of_one_session_and_token():
    assert len({debugger.key(*each) for each in [("a", "x"), ("a", "y"), ("b", "x")]}) == 3


@pytest.fixture
def fork(tmp_path):
    made = Warm(tmp_path)
    yield made
    made.end()


def test_each_run_is_a_fresh_program(fork, tmp_path):
    job = tmp_path / "job.py"
    job.write_text("import os, sys, helper; print('is', __name__, sys.argv, helper.X)")
    for run in (1, 2):
        (tmp_path / "helper.py").write_text(f"X = 'run {run} of {'many' * run}'")
        fork.order(run, "python", "job.py", "--a")
        said = fork.until('"ended"')
        assert f"is __main__ ['job.py', '--a'] run {run}" in said
        assert '"code": 0' in said


@pytest.mark.parametrize(
    ("text", "shown", "code"),
    [
        ("1 / 0", 'File "job.py", line 1, in <module>\n    1 / 0', 1),
        ("import sys; sys.exit('no')", "no\n", 1),
        ("raise SystemExit(3)", "", 3),
        ("x = (", 'job.py", line 1\n    x = (', 1),
        ("import os; os.kill(os.getpid(), 9)", "", -9),
    ],
)
def test_how_a_run_ends(fork, tmp_path, text, shown, code):
    (tmp_path / "job.py").write_text(text)
    fork.order(1, "python", "job.py")
    said = fork.until('"ended"')
    assert shown in said
    assert f'"code": {code}' in said
    assert "runpy" not in said


def test_a_run_gives_way_to_the_next_with_what_it_has_started(fork, tmp_path):
    lock = tmp_path / "lock"
    (tmp_path / "job.py").write_text(
        "import fcntl, os, subprocess, sys, time\n"
        f"file = open({str(lock)!r}, 'w'); os.set_inheritable(file.fileno(), True)\n"
        "fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "subprocess.Popen(['sleep', '1000'], close_fds=False)\n"
        "print('holds', os.environ['RUN'], flush=True); time.sleep(1000)\n"
    )
    fork.order(1, "python", "job.py")
    fork.until("holds 1")
    fork.order(2, "python", "job.py")
    assert '"run": 1, "code": null' in fork.until('"started", "run": 2')
    assert "holds 2" in fork.until("holds")
    fork.end()

    def free():
        return subprocess.run(["flock", "-n", lock, "true"], check=False).returncode == 0

    wait_for("what the run has started to end", free)


@pytest.fixture
def served(tmp_path, monkeypatch, tree):
    """Runs a session with some messages to its end; returns its orders and the mailbox."""

    def serve(*messages):
        monkeypatch.setattr(session, "LEASE_S", 0.3)
        monkeypatch.setattr(session.trees, "of_node", lambda _: tree)
        box = Mock(**{"take.side_effect": itertools.chain(messages, itertools.repeat(None))})
        monkeypatch.setattr(session.messages, "Mailbox", lambda _: box)
        results = tmp_path / "store" / ".dev" / "aa"
        for name, more in (("job-dev-1", "metrics.jsonl"), ("job-dev-2", "config.json")):
            (results / name / "logged").mkdir(parents=True)
            (results / name / "checkpoint_1").mkdir()
            for file in (more, f"logged/{name}.jsonl", "checkpoint_1/large"):
                (results / name / file).write_text(name)
        (tmp_path / "store/job-dev").mkdir(exist_ok=True)
        (tmp_path / "store/job-dev/jobs.jsonl").write_text("the recorder's")
        monkeypatch.setenv(session.STORAGE_VARIABLE, (tmp_path / "store").as_uri())
        monkeypatch.setenv(session.RUN_VARIABLE, "job-dev")
        orders = tmp_path / "orders"
        program = f"import sys; open({str(orders)!r}, 'w').write(sys.stdin.read())"
        real = subprocess.Popen
        monkeypatch.setattr(
            session.subprocess, "Popen", lambda _, **o: real([sys.executable, "-c", program], **o)
        )
        run = session.SessionJob("aa", ["python", "job.py", "--a"], debug=False, idle=False)
        try:
            run.serve()
        finally:
            run.close()
        assert not results.exists()
        return [json.loads(line) for line in orders.read_text().splitlines()], box

    return serve


def test_a_session_whose_client_is_gone_ends(served, capsys):
    orders, _ = served()
    assert [order["command"] for order in orders] == [["python", "job.py", "--a"]]
    assert "heard nothing from the client for 0.3 s" in capsys.readouterr().out


def test_a_message_changes_files_and_runs_again(served, tree, tmp_path):
    change = {"tree/job.py": new_file("WORD = 7\n")}
    again = patches.pack({"kind": "run"}, change)
    others = patches.pack({"kind": "run", "arguments": ["--b"]}, {})
    end = patches.pack({"kind": "end"}, {})
    orders, box = served(again, patches.pack({"kind": "alive"}, {}), others, end, again)
    assert [order.get("command", [])[2:] for order in orders] == [["--a"], [], ["--a"], [], ["--b"]]
    assert orders[2]["environment"] == {
        session.STORAGE_VARIABLE: f"{(tmp_path / 'store').as_uri()}/.dev/aa",
        session.RUN_VARIABLE: "job-dev-2",
    }
    [published] = box.publish.call_args.args
    assert {*patches.unpack(published)[1]} == {"tree/job.py"}
    box.publish.assert_called_once()


def test_a_session_is_a_run_with_the_records_of_its_latest_run(served, tmp_path):
    def kept():
        mine = tmp_path / "store/job-dev"
        return {str(each.relative_to(mine)) for each in mine.rglob("*") if each.is_file()}

    served()
    assert kept() == {"jobs.jsonl", "metrics.jsonl", "logged/job-dev-1.jsonl"}
    served(patches.pack({"kind": "run"}, {}), patches.pack({"kind": "end"}, {}))
    assert kept() == {"jobs.jsonl", "config.json", "logged/job-dev-2.jsonl"}
