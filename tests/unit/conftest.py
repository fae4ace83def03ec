"""Pulumi's mocks, recording: tests look afterwards at the resources that were declared."""

import asyncio
import errno
import os
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from pulumi.runtime import mocks, resource, settings
from pulumi.runtime.proto.source_pb2 import StackTrace


class RecordingMocks(mocks.Mocks):
    """Answers every resource with its inputs, and keeps them."""

    def __init__(self) -> None:
        self.created: list[mocks.MockResourceArgs] = []

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        self.created.append(args)
        outputs = dict(args.inputs)
        if args.typ.endswith(":Secret"):
            outputs["value"] = f"value of {args.name}"
        return f"{args.name}-id", outputs

    def call(self, args: mocks.MockCallArgs) -> dict[str, Any]:
        raise NotImplementedError(args.token)

    def of_type(self, suffix: str) -> dict[str, mocks.MockResourceArgs]:
        """By name, in the order of names: Pulumi registers resources in any order."""
        named = {args.name: args for args in self.created if args.typ.endswith(suffix)}
        return dict(sorted(named.items()))


@pytest.fixture(scope="session", autouse=True)
def _no_stack_traces() -> Iterator[None]:
    """Pulumi's SDK records where each resource is made, with all frames up to pytest's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resource, "_get_stack_trace", StackTrace)
        yield


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Set the umask of a user who lets everybody read and write everything."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def full() -> Mock:
    """A function that finds the disk full, in the place of one that writes."""
    return Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))


@pytest.fixture
def recorded() -> Iterator[RecordingMocks]:
    recording = RecordingMocks()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    mocks.set_mocks(recording, project="trainyard", stack="test")
    yield recording
    settings.reset_options(project="project", stack="stack")
    asyncio.set_event_loop(None)
    loop.close()
