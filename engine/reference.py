"""References to other stacks: outputs, read from the same backend with the same passphrase."""

from pulumi.runtime.proto import resource_pb2

from engine.context import Context
from engine.errors import EngineError, UnsupportedError
from engine.goal import urn_of
from engine.passphrase import passphrase
from engine.state import REFERENCE_TYPE, Backend, Entry, now, stack_outputs
from engine.structs import from_struct, to_struct
from engine.values import Properties, holds_secret
from trainyard.access.state_folder import ORGANIZATION


def read_outputs(
    context: Context, request: resource_pb2.ReadResourceRequest
) -> resource_pb2.ReadResourceResponse:
    """Answer a program's read of another stack.

    Raises:
        UnsupportedError: it is not a reference to a stack.
        EngineError: the stack is missing, or cannot be read.
    """
    if request.type != REFERENCE_TYPE:
        raise UnsupportedError(f"the lookup of {request.type} {request.name}")
    inputs = from_struct(request.properties)
    outputs = _outputs(context, str(inputs["name"]))
    hidden = sorted(key for key, value in outputs.items() if holds_secret(value))
    seen = {"name": inputs["name"], "outputs": outputs, "secretOutputNames": hidden}
    urn = urn_of(context.project.name, context.stack, request.parent, request.type, request.name)
    old = context.journal.old(urn)
    entry: Entry = {
        "urn": urn,
        "custom": True,
        "id": request.id,
        "type": request.type,
        "inputs": {"name": inputs["name"]},
        "outputs": seen,
        "parent": request.parent,
        "external": True,  # never deleted
        "provider": context.provider_reference(request.type, ""),
        # The CLI records no times for reads.
        "created": (old or {}).get("created", now()),
        "modified": (old or {}).get("modified", now()),
    }
    context.journal.record(entry, old, changed=False)
    return resource_pb2.ReadResourceResponse(urn=urn, properties=to_struct(seen))


def _outputs(context: Context, name: str) -> Properties:
    *parts, stack = name.split("/")
    project = parts[-1] if parts else context.project.name
    backend = Backend.of(context.project)
    if parts not in ([], [ORGANIZATION, project]):
        raise EngineError(
            f"stack reference {name!r}: must be STACK or {ORGANIZATION}/PROJECT/STACK"
        )
    if not backend.exists(project, stack):
        there = ", ".join(backend.stacks(project)) or "none"
        raise EngineError(
            f"stack reference {name!r}: {backend.url} has no such stack of project {project} "
            f"(there: {there}); bring it up first"
        )
    try:
        return stack_outputs(backend.load(project, stack, passphrase()).resources)
    except EngineError as error:
        raise EngineError(
            f"stack reference {name!r} cannot be read, with the passphrase of stack "
            f"{context.stack!r}: {error}"
        ) from None
