"""What tests with real services need: an object store to start, engines, and the pulumi CLI."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra import tools
from infra.hosts import go_tool
from infra.hosts.go_programs import STORES
from tests import go_tools
from tests.integration.engine import forked

CLI_SECONDS = 280


@pytest.fixture(scope="session")
def build_store(pytestconfig: pytest.Config) -> Callable[[str], Path]:
    """Return the program of an object store as a stack would build it, from its cache."""

    def build(name: str) -> Path:
        program = STORES[name]
        if not program.obtainable:
            pytest.skip(f"no Go {tools.GO} or later is on PATH")
        # The build takes minutes: whoever waits sees it go on.
        capture = pytestconfig.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            go_tool.GoToolProvider().create(go_tool.properties(program))
        return program.path

    return build


@pytest.fixture(scope="session")
def store_program(build_store: Callable[[str], Path]) -> Path:
    """The program of the object store that stacks have by default."""
    return build_store(tools.DEFAULT)


@pytest.fixture(scope="session")
def go_program(pytestconfig: pytest.Config) -> Callable[[str], Path]:
    """Return a program of tests/go_tools, from its cache."""

    def build(name: str) -> Path:
        capture = pytestconfig.pluginmanager.getplugin("capturemanager")
        try:
            with capture.global_and_fixture_disabled():
                return go_tools.obtain(name)
        except go_tools.NoGoError as error:
            pytest.skip(str(error))

    return build


@pytest.fixture(scope="session")
def engines() -> Iterator[forked.Server]:
    """Starts the engine's commands, in processes that need no time to import it."""
    server = forked.Server()
    yield server
    server.close()


@pytest.fixture(scope="session")
def pulumi_cli() -> Callable[..., str]:
    """Run the pulumi CLI in a project; what it printed."""
    if not shutil.which("pulumi"):
        pytest.skip("the pulumi CLI is not on PATH")

    def run(
        project: Path, environment: dict[str, str], stack: str, command: str, *arguments: str
    ) -> str:
        done = subprocess.run(
            ["pulumi", *command.split(), "-s", stack, "--non-interactive", *arguments],
            cwd=project,
            env={**environment, "PULUMI_SKIP_UPDATE_CHECK": "1"},
            capture_output=True,
            text=True,
            timeout=CLI_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
