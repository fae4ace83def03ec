"""Which processes are a stack's: those that carry its label, and no others."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from node import owned_processes
from node.folders import FolderMark
from node.life import ServiceError
from node.owned_processes import NAME, STACK, URL
from trainyard.client.outputs import STACK_VARIABLE

OURS = FolderMark(id="0123abcd", project="trainyard", stack="dev", by="ada@here")
THEIRS = FolderMark(id="4567abcd", project="trainyard", stack="dev", by="bob@there")
SLEEP = "import time; print(flush=True); time.sleep(600)"
AGENT = f"from ray._raylet import setproctitle; setproctitle('ray::DashboardAgent'); {SLEEP}"
Start = Callable[..., int]


@pytest.fixture
def url(tmp_path) -> str:
    return f"unix://{tmp_path}/supervisor.sock"


@pytest.fixture
def start(tmp_path) -> Iterator[Start]:
    """Start a process that sleeps, in an environment; its id."""
    with ExitStack() as started:

        def run(*arguments: str, program: str = SLEEP, **environment: str) -> int:
            command = [sys.executable, "-c", program, *arguments]
            process = started.enter_context(
                subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
            )
            started.callback(process.kill)
            assert process.stdout is not None
            process.stdout.readline()  # its own program runs, and no copy of this one
            return process.pid

        yield run


def _pids(found: list[psutil.Process]) -> set[int]:
    return {process.pid for process in found}


def test_jobs_inherit_nothing_that_train_reads_as_the_users_choice(url):
    client = Path(__file__).parents[3] / "trainyard/client"
    read = "".join(path.read_text() for path in client.rglob("*.py"))
    assert STACK_VARIABLE in read
    assert not [name for name in owned_processes.environment(url, OURS) if f'"{name}"' in read]


def test_a_process_is_known_by_its_environment_alone(start, url):
    web = start(**owned_processes.environment(url, OURS), **{NAME: "web"})
    itself = start(**owned_processes.environment(url, OURS))
    unmarked = start(**{URL: url, NAME: "web"})
    other = start(**owned_processes.environment(url, THEIRS), **{NAME: "web"})
    elsewhere = start(**owned_processes.environment(f"{url}2", OURS), **{NAME: "web"})
    editor = start(f"{url.removeprefix('unix://')}", "-c", f"{url}/web/run")
    assert _pids(owned_processes.of_supervisord(url, OURS)) == {web, itself, unmarked}
    assert _pids(owned_processes.of_supervisord(url, OURS, "web")) == {web, unmarked}
    owned_processes.end(lambda: owned_processes.of_supervisord(url, OURS), Path("/x"))
    assert [psutil.pid_exists(pid) for pid in (other, elsewhere, editor)] == [True] * 3
    assert owned_processes.of_supervisord(url, OURS) == []


def test_an_agent_of_ray_is_known_though_it_writes_its_title_over_its_variables(start, url):  # F63
    agent = start(program=AGENT, **owned_processes.environment(url, OURS))
    assert "ray::DashboardAgent" in psutil.Process(agent).cmdline()
    assert _pids(owned_processes.of_supervisord(url, OURS)) == {agent}


def test_processes_of_another_stack_in_the_same_folder_are_refused_by_name(  # F46
    start, url, tmp_path
):
    start(**owned_processes.environment(url, OURS))
    owned_processes.refuse_foreign(url, OURS)
    pid = start(**owned_processes.environment(url, THEIRS))
    with pytest.raises(ServiceError) as raised:
        owned_processes.refuse_foreign(url, OURS)
    message = str(raised.value)
    assert message.startswith(f"processes {pid} run from {tmp_path} for stack dev of project ")
    assert "made by bob@there" in message
    assert message.endswith(f"kill -9 {pid}")


def test_what_a_launcher_started_is_known_by_the_label_and_no_supervisord(start, url):
    node = start(**{STACK: OURS.label})
    start(**{STACK: THEIRS.label})
    start(**owned_processes.environment(url, OURS))
    assert _pids(owned_processes.of_no_supervisord(OURS)) == {node}


@pytest.mark.skipif(os.getuid() != 0, reason="only root sees and starts processes of others")
def test_what_another_user_writes_into_an_environment_says_nothing(url):
    with subprocess.Popen(
        ["/bin/sleep", "600"],
        env=owned_processes.environment(url, OURS),
        user=12345,
    ) as process:
        try:
            assert owned_processes.of_supervisord(url, OURS) == []
            owned_processes.refuse_foreign(url, THEIRS)
        finally:
            process.kill()
