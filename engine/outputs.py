"""The outputs of a stack: the engine prints them, and the client reads them in its own process."""

from pathlib import Path
from typing import Any

from engine.errors import EngineError
from engine.passphrase import passphrase
from engine.project import Project, check_stack_name
from engine.state import Backend, stack_outputs
from engine.values import is_secret, mask, reveal


def place(folder: Path, stack: str) -> tuple[Project, str, Backend]:
    """The project of a folder, the name of a stack, and the backend that may have its state.

    Raises:
        EngineError: no project, or none that the engine knows; a name that no stack can have.
    """
    project = Project.find(folder.resolve())
    return project, check_stack_name(stack), Backend.of(project)


def read(project: Project, stack: str, backend: Backend, *, secrets: bool) -> Any:
    """Outputs of a stack, by name; the passphrase is only needed for secrets.

    Raises:
        EngineError: no such stack, a damaged state, or a wrong passphrase.
        BucketError: the store of the state refuses, or does not answer.
    """
    outputs = stack_outputs(raw_state(project, stack, backend).get("resources") or [])
    if not secrets:
        return mask(outputs)
    if any(is_secret(value) or isinstance(value, (dict, list)) for value in outputs.values()):
        outputs = stack_outputs(backend.load(project.name, stack, passphrase()).resources)
    return reveal(outputs)


def raw_state(project: Project, stack: str, backend: Backend) -> dict[str, Any]:
    """The deployment of a stack, its secrets encrypted; raises as `read` does."""
    if not backend.exists(project.name, stack):
        raise unknown_stack(project, stack, backend)
    return backend.read_raw(project.name, stack)


def unknown_stack(project: Project, stack: str, backend: Backend) -> EngineError:
    """The error about a stack without a state."""
    known = ", ".join(backend.stacks(project.name)) or "none"
    return EngineError(
        f"no stack named {stack!r} in {backend.url} (there: {known}); to make it, write "
        f"Pulumi.{stack}.yaml and run `train up -s {stack}`"
    )
