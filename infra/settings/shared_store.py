"""The object store of another stack in place of one of the stack's own: the setting `storeFrom`."""

from typing import Any
from urllib.parse import urlsplit

import pulumi

from cluster.storage import BUCKET, Storage
from trainyard.access import outputs


def of(name: str) -> Storage:
    """Return the storage of the jobs of another stack, from its outputs.

    It is of this project, in the same place of states.

    Raises:
        pulumi.RunError: in an output, if the other stack has no store that nodes here reach.
    """
    path = f"{pulumi.get_organization()}/{pulumi.get_project()}/{name}"
    other = pulumi.StackReference(name, path)
    known = pulumi.Output.all(
        **{key: other.get_output(key) for key in (outputs.OBJECT_STORE_ENDPOINT, outputs.SSH)}
    ).apply(lambda found: _checked(name, found))
    return Storage(
        url=f"s3://{BUCKET}",
        endpoint=known,
        internal=known.apply(lambda endpoint: urlsplit(endpoint).netloc),
        bucket=BUCKET,
        access_key=_key(other, outputs.ACCESS_KEY, name),
        secret_key=_key(other, outputs.SECRET_KEY, name),
        needs=[other],
    )


def _key(other: pulumi.StackReference, output: str, name: str) -> pulumi.Output[str]:
    def opened(value: Any) -> str:
        # Where the passphrase is another one, the CLI gives an empty object for a secret.
        if value and isinstance(value, str):
            return value
        raise pulumi.RunError(
            f"storeFrom: the keys of stack {name!r} cannot be read: it has another passphrase. "
            "Give both stacks the same one; or remove storeFrom"
        )

    return pulumi.Output.secret(other.get_output(output)).apply(opened)


def _checked(name: str, found: dict[str, Any]) -> str:
    """Return the endpoint of the other stack's store."""
    endpoint = str(found[outputs.OBJECT_STORE_ENDPOINT] or "")
    fault = ""
    if not endpoint:
        fault = "has no object store: bring it up with objectStore = 'versitygw'"
    elif found[outputs.SSH]:
        fault = "is on other machines, which alone reach its object store"
    if fault:
        raise pulumi.RunError(f"storeFrom: stack {name!r} {fault}; or remove storeFrom")
    return endpoint
