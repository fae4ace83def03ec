"""A TCP proxy that cuts connections at a byte, stops forwarding, or is away for a while."""

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress

BLOCK_BYTES = 64 * 1024
# Closing with this sends a reset, like a machine that has lost the connection.
RESET = struct.pack("ii", 1, 0)


class ChaosProxy:
    """Forwards to a port of this machine.

    Attributes:
        port: where it listens.
        target: the port behind; may be changed at any time.
        sent: bytes that have come from clients so far.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.sent = 0
        self._lock = threading.Lock()
        self._flows = threading.Event()
        self._flows.set()
        self._due: tuple[int, Callable[[], None]] | None = None
        self._open: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self.port = 0
        self.up()

    def __enter__(self) -> "ChaosProxy":
        return self

    def __exit__(self, *_: object) -> None:
        self.resume()
        self.down()

    def after(self, count: int, action: Callable[[], None]) -> None:
        """Does something, once, when clients have sent so many bytes from now on.

        The block with that byte is not forwarded before the action has ended, or at all if the
        action has cut the connection.
        """
        with self._lock:
            self._due = self.sent + count, action

    @property
    def done(self) -> bool:
        """Whether what `after` asked for has begun."""
        return self._due is None

    def cut(self) -> None:
        """Resets all connections."""
        with self._lock:
            gone, self._open = self._open, set()
        for each in gone:
            self._reset(each)

    def pause(self) -> None:
        """Takes bytes and connections, and forwards nothing."""
        self._flows.clear()

    def resume(self) -> None:
        """Forwards again, held data first."""
        self._flows.set()

    def down(self) -> None:
        """Resets all connections and refuses new ones."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            listener.close()
        self.cut()

    def up(self) -> None:
        """Listens (again), always on the same port."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(128)
        self.port = listener.getsockname()[1]
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target), timeout=5)
                server.settimeout(None)
            except OSError:
                self._reset(client)
                continue
            with self._lock:
                self._open |= {client, server}
            for source, target, counts in ((client, server, True), (server, client, False)):
                threading.Thread(
                    target=self._pump, args=(source, target, counts), daemon=True
                ).start()

    def _pump(self, source: socket.socket, target: socket.socket, counts: bool) -> None:
        try:
            while block := source.recv(BLOCK_BYTES):
                self._flows.wait()
                if counts and (action := self._count(len(block))):
                    action()
                target.sendall(block)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            self._reset(source)
            self._reset(target)

    def _count(self, count: int) -> Callable[[], None] | None:
        with self._lock:
            self.sent += count
            if self._due is None or self.sent < self._due[0]:
                return None
            (_, action), self._due = self._due, None
            return action

    def _reset(self, each: socket.socket) -> None:
        with suppress(OSError):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            each.shutdown(socket.SHUT_RDWR)
        each.close()
        with self._lock:
            self._open.discard(each)
