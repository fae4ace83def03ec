"""A session's messages, watches and output, and the users who may debug it."""

import json
import os
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import ran
from tests.editor import attach, frame
from tests.growth import growth
from tests.warm import Warm
from trainyard.client.dev import debugger, watch
from trainyard.client.dev.debugger import Debugger
from trainyard.client.dev.log import Log, unread
from trainyard.client.dev.sources import Sources
from trainyard.client.errors import ClientError
from trainyard.client.listing import NEVER_UPLOADED
from trainyard.client.scripts import Script
from trainyard.dev_session import debugger as there
from trainyard.dev_session import records

SECRET = "canary-0123456789"


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    for name in (".git", ".venv/lib", "data", "kept/inner", "__pycache__"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").write_text(name)
    (folder / ".gitignore").write_text("data\n")
    (folder / "job.py").write_text("1\n")
    return folder


@pytest.fixture
def sources(project):
    script = Script("job", project / "job.py", ("python", "job.py"), str(project), None)
    return Sources(script, NEVER_UPLOADED, [SECRET])


def test_a_change_is_sent_once(sources, project):
    assert sources.changes() == {}
    (project / "job.py").write_text("2\n")
    (project / "new.py").write_text("")
    (project / "kept" / "inner" / "file").unlink()
    changes = sources.changes()
    assert set(changes) == {"tree/job.py", "tree/new.py", "tree/kept/inner/file"}
    assert changes["tree/kept/inner/file"] is None
    assert sources.changes() == {}
    (project / "job.py").write_text("1\n")  # as at the beginning
    assert set(sources.changes({project / "job.py"})) == {"tree/job.py"}


def test_a_change_that_did_not_arrive_is_sent_again(sources, project):
    (project / "job.py").unlink()
    for _ in range(2):
        changes = sources.changes()
        assert changes == {"tree/job.py": None}
        sources.forget(changes)


def test_what_is_left_out_is_not_sent(sources, project):
    for name in (".git/file", ".venv/lib/file", "data/file", "__pycache__/file", ".env"):
        (project / name).write_text("changed")
    assert sources.changes({project / ".git" / "file"}) == {}
    assert {project, project / "kept", project / "kept" / "inner"} <= sources.folders
    assert not {project / ".git", project / "data", project / ".venv" / "lib"} & sources.folders


def test_only_files_that_were_written_are_read(sources, project):
    (project / "job.py").write_text("2\n")
    (project / "kept" / "inner" / "file").write_text("2\n")
    assert set(sources.changes({project / "job.py"})) == {"tree/job.py"}


def test_a_secret_is_not_sent(sources, project):
    (project / "job.py").write_text(f"KEY = {SECRET!r}\n")
    with pytest.raises(ClientError, match=r"^job\.py holds a secret of the stack: nothing was"):
        sources.changes()
    (project / "job.py").write_text("3\n")
    assert set(sources.changes()) == {"tree/job.py"}


def test_saves_are_noticed_in_new_folders_too(sources, project):
    found = watch.saves(sources)
    assert next(found) == set()  # watching has begun

    def sent():
        return next(names for each in found if each and (names := set(sources.changes(each))))

    (project / "job.py").write_text("x")
    assert sent() == {"tree/job.py"}
    (project / "fresh").mkdir()
    (project / "fresh" / "a.py").write_text("x")
    assert sent() == {"tree/fresh/a.py"}
    (project / "empty").mkdir()
    next(each for each in found if each and not sources.changes(each))
    (project / "empty" / "b.py").write_text("x")
    assert sent() == {"tree/empty/b.py"}
    found.close()


def test_a_log_shows_paths_of_this_machine(capsys):
    heard = []
    log = Log("aa", {"tree": Path("/mine/project")}, heard.append)
    text = 'File "/tmp/ray/s/runtime_resources/dev_sessions/aa/tree/job.py", line 3, é\n'
    content = f"{text}{records.MARK}{json.dumps({'event': 'ready'})}\nrest".encode()
    for i in range(len(content)):  # cut anywhere
        log.feed(content[i : i + 1])
    log.close()
    said = capsys.readouterr().out
    assert said == 'File "/mine/project/job.py", line 3, é\nrest'
    assert heard == [{"event": "ready"}]


def test_a_line_without_blanks_takes_linear_time():  # F56
    log = Log("aa", {"tree": Path("/mine")}, lambda _: None)
    assert growth(lambda size: log._here("x/" * size), 10_000, 8) < 32  # else 64
    assert log._here("a/x/dev_sessions/aa/tree/b(c/dev_sessions/aa/tree/d") == "/mine/b(/mine/d"


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "3", '{"event": 3}', '{"event": "none"}', '{"event": ["ended"]}'),
        *('{"event": "ended"}', '{"event": "ended", "run": 1, "seconds": 1}'),
        '{"event": "ended", "run": "x", "code": 0, "seconds": 1}',
        '{"event": "debugger", "host": "h", "port": 70000, "folder": "f"}',
        '{"event": "debugger", "host": "h", "port": "1", "folder": "f"}',
    ],
)
def test_a_malformed_record_is_output(text, capsys):
    log = Log("aa", {}, lambda _: pytest.fail("a record was heard"))  # F56
    log.feed(f"{records.MARK}{text}\n".encode())
    assert capsys.readouterr().out == f"{records.MARK}{text}\n"


def test_a_log_that_is_read_again_goes_on_where_it_was():
    assert b"".join(unread(iter([b"abc", b"def", b"g"]), 4)) == b"efg"


@pytest.fixture
def run():
    """Where debugpy would listen."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture
def ready(stack, run, monkeypatch, capsys):
    """A way to the run; the configuration that it shows for editors."""
    monkeypatch.setattr(debugger, "PORT", 0)
    with ExitStack() as resources:
        made = Debugger("aa", stack, resources)
        made.point("127.0.0.1", run.getsockname()[1], {"/here": "/there/tree"})
        said = capsys.readouterr().out
        yield json.loads(said[said.index("{") : said.rindex("}") + 1])


def address(configuration):
    return configuration["connect"]["host"], configuration["connect"]["port"]


def test_an_editor_reaches_the_run_with_the_sessions_key(ready, run, stack):
    assert ready["pathMappings"] == [{"localRoot": "/here", "remoteRoot": "/there/tree"}]
    with socket.create_connection(address(ready), 10) as editor:
        accepted, _ = run.accept()
        with accepted:
            asked = json.loads(accepted.recv(4096).partition(b"\r\n\r\n")[2])
            key = asked["arguments"]["debugServerAccessToken"]
            assert key == there.key(stack.ray_token, "aa")
            assert stack.ray_token not in key
            accepted.sendall(frame({"success": True}))
            editor.sendall(b"from the editor")
            assert accepted.recv(100) == b"from the editor"
            accepted.sendall(b"from the run")
            assert editor.recv(100) == b"from the run"


def test_a_run_that_refuses_the_key(ready, run, capsys):
    with socket.create_connection(address(ready), 10) as editor:
        accepted, _ = run.accept()
        with accepted:
            accepted.recv(4096)
            accepted.sendall(frame({"success": False}))
            assert editor.recv(100) == b""
    assert "does not know this session's key" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="takes another user's identity")
def test_another_user_does_not_reach_the_run(ready, capsys):
    # A program that another user can read, whatever the folder of this Python.
    here = f"exec 3<>/dev/tcp/{'/'.join(map(str, address(ready)))}; cat <&3; echo closed"
    stranger = ran.run(["bash", "-c", here], user=65534)
    assert stranger.stdout == "closed\n", stranger.stderr
    assert "of another user" in capsys.readouterr().err


@pytest.fixture
def waiting(stack, tmp_path):
    """A warm process, with a run that waits for a debugger, and where."""
    (tmp_path / "job.py").write_text("found = 6\nfound *= 7\nprint('found', found)\n")
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": stack.ray_token}
    made = Warm(tmp_path, RAY_ADDRESS="127.0.0.1:1", **token)
    made.order(1, "python", "job.py", debug=True)
    waits = records.parse(made.until(f'"{records.DEBUGGER}"').splitlines()[-1])
    yield made, (waits["host"], waits["port"])
    made.end()


def test_an_editor_stops_a_run_at_a_breakpoint(waiting, stack, tmp_path, monkeypatch):
    listener = socket.create_server(("127.0.0.1", 0))
    monkeypatch.setattr(debugger, "_listen", lambda: listener)
    with ExitStack() as resources:
        process, address = waiting
        Debugger("aa", stack, resources).point(*address, {})
        editor = attach(listener.getsockname())
        resources.callback(editor.close)
        editor.until(event="initialized")
        source = {"path": str(tmp_path / "job.py")}
        editor.send("setBreakpoints", source=source, breakpoints=[{"line": 3}])
        editor.send("configurationDone")
        stopped = editor.until(event="stopped")["body"]
        editor.send("stackTrace", threadId=stopped["threadId"])
        top = editor.until(command="stackTrace")["body"]["stackFrames"][0]
        assert top["line"] == 3
        editor.send("evaluate", expression="found", frameId=top["id"])
        assert editor.until(command="evaluate")["body"]["result"] == "42"
        editor.send("continue", threadId=stopped["threadId"])
        assert '"code": 0' in process.until(f'"{records.ENDED}"')


def test_a_run_obeys_nobody_without_the_key(waiting):
    _, address = waiting
    editor = attach(address)
    try:
        for command in ("attach", "configurationDone", "evaluate"):
            editor.send(command, expression="__import__('os')._exit(9)")
            reply = editor.until(type="response", request_seq=editor.sent)
            assert not reply["success"]
            assert "not authenticated" in reply["message"]
    finally:
        editor.close()
