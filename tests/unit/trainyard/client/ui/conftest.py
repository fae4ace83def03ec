"""The page's server on a stack in memory."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from tests import ui_stack
from trainyard.client.ui import run_cache
from trainyard.client.ui.answers import Answers
from trainyard.client.ui.commands import Commands
from trainyard.client.ui.guard import Guard
from trainyard.client.ui.server import application
from trainyard.client.ui.stacks import Stacks

PORT = 8268


@pytest.fixture
def head() -> ui_stack.Head:
    return ui_stack.Head([ui_stack.job(1), ui_stack.job(2, "RUNNING"), ui_stack.job(3, "PENDING")])


@pytest.fixture
def store(tmp_path) -> Path:
    path = tmp_path / "store"
    for number in (1, 2):
        ui_stack.write_run(path, f"run-{number:04}", lr=number / 100)
    return path


@pytest.fixture
def answering(head, store, tmp_path, monkeypatch) -> Iterator[Callable[..., Starlette]]:
    """Makes the page's application; with `read_only` that of the service."""
    monkeypatch.chdir(tmp_path)
    for name in ("TRAINYARD_OUTPUTS", "TRAINYARD_STACK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(run_cache, "WAIT_S", 60.0)  # on a busy machine a first answer is a part
    with ui_stack.up(head, tmp_path, store) as file:
        stacks, commands = Stacks(None, file, lambda _: None), Commands(file)
        yield lambda **how: application(Answers(stacks, commands, **how))
        commands.close()
        stacks.close()


@pytest.fixture
def guard(answering) -> Guard:
    return Guard(answering(), PORT)


@pytest.fixture
def stranger(guard) -> TestClient:
    """A browser without the key."""
    return TestClient(guard, base_url=guard.origin)


@pytest.fixture
def browser(guard, stranger) -> TestClient:
    """The browser that came with the key."""
    ui_stack.exchange_key(stranger, guard.address)
    return stranger
