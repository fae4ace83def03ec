"""What all tests with real services need: a MinIO to start, and the pulumi CLI where it is."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra import versions
from infra.hosts import local
from infra.hosts.go_tool import GoToolProvider

CLI_SECONDS = 280


@pytest.fixture(scope="session")
def minio_on_path(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Path]:
    """The MinIO of PATH, or the one that a stack would build; on PATH for the rest of the run."""
    source = local.minio_source()
    if source is None:
        pytest.skip("neither minio nor Go 1.24 or later is on PATH")
    if source != "go":
        yield Path(source)
        return
    path = local.cached_minio()
    props = {"module": versions.MINIO_MODULE, "version": versions.MINIO, "path": str(path)}
    # The build takes minutes: whoever waits sees it go on.
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        GoToolProvider().create(props)
    folder = tmp_path_factory.mktemp("bin")
    (folder / "minio").symlink_to(path)
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{folder}{os.pathsep}{before}"
    yield Path(shutil.which("minio") or path)
    os.environ["PATH"] = before


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
