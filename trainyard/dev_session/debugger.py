"""A run that waits for a debugger: debugpy listens, and obeys only holders of the session's key.

The key derives from the Ray token, which client and cluster have: it is never sent.
"""

import hmac
import os
import socket
import sys
from pathlib import Path

from . import records

PURPOSE = "trainyard: debugger of session "


def key(token: str, session: str) -> str:
    """Return the key of a session's debugger, as hex digits."""
    return hmac.digest(token.encode(), (PURPOSE + session).encode(), "sha256").hex()


def wait(session: str, folder: Path) -> None:
    """Prints where it listens, with the session's folder; returns when a debugger has attached."""
    import debugpy.server.api  # noqa: F401, PLC0415 - makes the next one importable
    import pydevd  # type: ignore[import-not-found] # noqa: PLC0415 - debugpy's own copy
    from ray import _raylet  # noqa: PLC0415 - slow

    loader = _raylet.AuthenticationTokenLoader.instance()  # type: ignore[attr-defined]
    token = str(loader.get_raw_token(ignore_auth_mode=True))
    # Drivers run on the head.
    host = socket.gethostbyname(os.environ["RAY_ADDRESS"].rpartition(":")[0])
    # debugpy's own `listen` sets no token, and would let anyone on this machine run code here.
    pydevd.settrace(
        host=host,
        port=0,
        suspend=False,
        block_until_connected=False,
        wait_for_ready_to_run=False,
        access_token=key(token, session),
        client_access_token=key(token, session),
        protocol="dap",
    )
    found = sys.modules["_pydevd_bundle.pydevd_constants"].GlobalDebuggerHolder.global_dbg
    found.wait_for_server_socket_ready()
    port = found._server_socket_name[1]
    records.print_record(records.DEBUGGER, host=host, port=port, folder=str(folder))
    pydevd._wait_for_attach()
