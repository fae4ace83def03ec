"""Stacks that use outputs of another one, such as its object store, and so end before it."""

from engine.errors import EngineError
from engine.state import REFERENCE_TYPE, Backend
from trainyard.access.state_bucket import BucketError
from trainyard.access.state_folder import ORGANIZATION


def refuse_used(backend: Backend, project: str, stack: str) -> None:
    """Refuse to end a stack that others of its project and backend refer to.

    Raises:
        EngineError: it names them.
        BucketError: the states cannot be read.
    """
    using = [
        other
        for other in backend.stacks(project)
        if other != stack
        and not {stack, f"{ORGANIZATION}/{project}/{stack}"}.isdisjoint(
            _references(backend, project, other)
        )
    ]
    if using:
        raise EngineError(
            f"stack {stack} is in use by {', '.join(using)}: they read its outputs, with storeFrom "
            "to keep results in its store. End them first, or remove storeFrom from their settings "
            "and bring them up again; nothing was changed"
        )


def _references(backend: Backend, project: str, stack: str) -> list[str]:
    """Names of the stacks that one refers to; none if its state cannot be read."""
    try:
        resources = backend.read_raw(project, stack).get("resources") or []
    except BucketError:  # nothing is known of any
        raise
    except (EngineError, OSError):  # its own commands report it; others' machines must end
        return []
    references = [each for each in resources if each["type"] == REFERENCE_TYPE]
    return [str((each.get("inputs") or {}).get("name")) for each in references]
