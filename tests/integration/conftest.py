"""Fixtures of tests with real services: an object store to start, engines, and the pulumi CLI."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.machines import go_tool, tools
from infra.machines.go_programs import STORES
from tests import go_tools
from tests.cli import Cli, install, lacking
from tests.integration.engine import forked


@pytest.fixture(scope="session")
def build_store(pytestconfig) -> Callable[[str], Path]:
    """Return the program of an object store as a stack would build it, from its cache."""

    def build(name: str) -> Path:
        program = STORES[name]
        if not program.obtainable:
            pytest.skip(f"no Go {tools.GO} or later is on PATH")
        # The build takes minutes: show its progress.
        capture = pytestconfig.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            go_tool.GoToolProvider().create(vars(go_tool.properties(program)))
        return program.path

    return build


@pytest.fixture(scope="session")
def store_program(build_store) -> Path:
    """The program of the object store that stacks have by default."""
    return build_store(tools.DEFAULT)


@pytest.fixture(scope="session")
def go_program(pytestconfig) -> Callable[[str], Path]:
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
def real_plugins() -> None:
    """Pulumi's own plugins, for tests of their work."""
    if reason := lacking(os.environ):
        pytest.skip(reason)


@pytest.fixture(scope="session")
def pulumi_cli(pytestconfig, tmp_path_factory) -> Iterator[Cli]:
    """The pulumi CLI of PATH if it has its plugins, else one that Go builds."""
    if not (reason := lacking(os.environ)):
        yield Cli()
        return
    folder = tmp_path_factory.mktemp("pulumi")
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    try:
        with capture.global_and_fixture_disabled():
            cli = install(folder)
    except go_tools.NoGoError as error:
        pytest.skip(f"{reason}, and {error}")
    yield cli
    shutil.rmtree(folder)
