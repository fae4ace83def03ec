"""Commands and files on other machines by SSH; hosts are always identified by their key."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import asyncssh

from engine.command.output import Output
from engine.command.schema import PRIVATE, host_key_fault
from engine.errors import EngineError
from engine.providers import Say
from engine.values import Properties
from trainyard.access import ssh_client
from trainyard.access.ssh import Connection, SshError, UnreachableError

# As the plugin waits between dials.
FIRST_DELAY_SECONDS = 0.1
LONGEST_DELAY_SECONDS = 5.0
BACKOFF = 1.5
# OpenSSH does not signal root's commands. All commands of a connection are children of the one
# process that serves it.
END_ALL = "for i in $(ps -o pid= --ppid $PPID); do [ $i = $$ ] || kill -TERM -$i; done"
END_SECONDS = 2.0  # for a command to end when told to


def name_of(connection: Properties) -> str:
    """The name of a host in messages."""
    return Connection.of(connection).name


async def run_remote(connection: Properties, command: str, output: Output, say: Say) -> str:
    """Run a command in the shell of the host's user.

    Returns:
        How it failed; "" when it did not.

    Raises:
        EngineError: the host cannot be reached or used.
    """
    async with _connected(connection, say) as client:
        process = await client.create_process(command, stdin=asyncssh.DEVNULL, encoding=None)
        try:
            await asyncio.gather(
                output.listen("stdout", process.stdout), output.listen("stderr", process.stderr)
            )
            await process.wait_closed()
        except asyncio.CancelledError:
            await _end(client, process)
            raise
    if process.exit_signal is not None:
        return f"signal SIG{process.exit_signal[0]}"
    if process.exit_status is None:
        return "a lost connection; it may still run there"
    return f"status {process.exit_status}" if process.exit_status else ""


async def copy(connection: Properties, path: str, destination: str, say: Say) -> None:
    """Copy a file to the host, over an existing one, or into an existing folder.

    Raises:
        EngineError: the host cannot be reached, or does not take it.
    """
    async with _connected(connection, say) as client, client.start_sftp_client() as files:
        try:
            await files.put(path, destination)
        except asyncssh.SFTPError as error:
            raise EngineError(
                f"{name_of(connection)} does not take {destination}: {error.reason}; may its user "
                "write there, and is there room?"
            ) from None


async def _end(
    client: asyncssh.SSHClientConnection, process: asyncssh.SSHClientProcess[bytes]
) -> None:
    """End a command on the host: a server leaves it running when the connection ends."""
    with suppress(OSError, TimeoutError, asyncssh.Error):
        process.terminate()
        await asyncio.wait_for(client.run(END_ALL), END_SECONDS)
        await asyncio.wait_for(process.wait_closed(), END_SECONDS)


@asynccontextmanager
async def _connected(
    connection: Properties, say: Say
) -> AsyncIterator[asyncssh.SSHClientConnection]:
    client = await _dial(connection, say)
    try:
        yield client
        client.close()
        await client.wait_closed()
    except asyncssh.Error as error:
        raise EngineError(
            f"the connection to {name_of(connection)} broke ({error}); its work there may go on: "
            "check, then run up again"
        ) from None
    finally:
        client.abort()


async def _dial(connection: Properties, say: Say) -> asyncssh.SSHClientConnection:
    """Connect, as often as the connection's limit allows."""
    if fault := host_key_fault(connection):  # a state may hold an unchecked one
        raise EngineError(f"connection: {fault}")
    there, limit = Connection.of(connection), connection["dialErrorLimit"]
    delay, attempt = FIRST_DELAY_SECONDS, 0
    while True:
        attempt += 1
        try:
            async with ssh_client.login_keys(there, PRIVATE) as keys:
                return await ssh_client.connect(there, keys, seconds=connection["perDialTimeout"])
        except UnreachableError as error:
            reason = error.reason
        except SshError as error:
            raise EngineError(str(error)) from None
        if attempt > limit:
            text = ssh_client.unreachable(there, f"after {attempt} attempts", reason)
            raise EngineError(text)
        say(
            "info", f"{there.name} does not answer yet (attempt {attempt} of {limit + 1}: {reason})"
        )
        await asyncio.sleep(delay)
        delay = min(delay * BACKOFF, LONGEST_DELAY_SECONDS)
