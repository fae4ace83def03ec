"""A resource as a look at it comes out."""

from collections.abc import Callable
from typing import Any

import pytest

from infra.operate.drift.look import ResourceLook, StackLook


@pytest.fixture
def seen() -> Callable[..., ResourceLook]:
    """A resource that is as the state has it, but for what a test says."""

    def build(type_: str, name: str, **fields: Any) -> ResourceLook:
        fields["said"] = str(fields.get("error", ""))
        return ResourceLook(
            **({"urn": f"urn:{name}", "id": name, "props": {}} | fields), type=type_, name=name
        )

    return build


@pytest.fixture
def looked() -> Callable[..., StackLook]:
    """A stack of some resources."""

    def build(*seen: ResourceLook, **fields: Any) -> StackLook:
        return StackLook(**({"outputs": {}, "pending": []} | fields), seen=seen)

    return build
