"""A resource as a look at it comes out."""

from collections.abc import Callable
from typing import Any

import pytest

from infra.drift.look import Looked, Seen


@pytest.fixture
def seen() -> Callable[..., Seen]:
    """A resource that is as the state has it, but for what a test says."""

    def build(type_: str, name: str, **fields: Any) -> Seen:
        fields["said"] = str(fields.get("error", ""))
        return Seen(
            **({"urn": f"urn:{name}", "id": name, "props": {}} | fields), type=type_, name=name
        )

    return build


@pytest.fixture
def looked() -> Callable[..., Looked]:
    """A stack of some resources."""

    def build(*seen: Seen, **fields: Any) -> Looked:
        return Looked(**({"outputs": {}, "pending": []} | fields), seen=seen)

    return build
