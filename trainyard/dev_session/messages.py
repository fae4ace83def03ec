"""Messages from a client to its session, in the cluster's key-value store.

The client writes them through the dashboard, the only address of a cluster that is always
reachable, by the route of jobs' packages; Ray checks the token at both ends.
"""

import os

PACKAGES = "/api/packages/gcs/"  # of the dashboard
PREFIX = "_ray_pkg_dev-"  # of their names
TIMEOUT_S = 10


def name(session: str, number: int | str) -> str:
    """Return the name of a session's message."""
    return f"{PREFIX}{session}-{number}"


class Mailbox:
    """Messages of a session, seen from the cluster."""

    def __init__(self, session: str) -> None:
        from ray import _raylet  # noqa: PLC0415 - slow

        self._session = session
        self._store = _raylet.GcsClient(  # type: ignore[attr-defined] # not in Ray's stubs
            address=os.environ["RAY_ADDRESS"]
        )
        self._next = 0

    def take(self) -> bytes | None:
        """Return the next message, if it has come."""
        key = self._key(self._next)
        found: bytes | None = self._store.internal_kv_get(key, None, TIMEOUT_S)
        if found is not None:
            self._store.internal_kv_del(key, False, None, TIMEOUT_S)
            self._next += 1
        return found

    def publish(self, overlay: bytes) -> None:
        """Publishes all changes for the workers of other nodes."""
        self._store.internal_kv_put(self._key("overlay"), overlay, True, None, TIMEOUT_S)

    def clear(self) -> None:
        """Removes the remaining messages; a message may have come twice if its reply was lost."""
        self._store.internal_kv_del(self._key(""), True, None, TIMEOUT_S)

    def _key(self, number: int | str) -> bytes:
        return f"gcs://{name(self._session, number)}".encode()


def all_changes(session: str) -> bytes | None:
    """Return all changes so far, for a worker that Ray has connected."""
    from ray.experimental import internal_kv  # noqa: PLC0415 - slow

    found: bytes | None = internal_kv._internal_kv_get(
        f"gcs://{name(session, 'overlay')}", namespace=None
    )
    return found
