"""An editor that debugs: it speaks the Debug Adapter Protocol, as debugpy does."""

import json
import socket
from typing import Any


def frame(message: dict[str, Any]) -> bytes:
    body = json.dumps(message).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


class Editor:
    """The editor's side of the Debug Adapter Protocol."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, 60)
        self.file = self.socket.makefile("rb")
        self.sent = 0

    def send(self, command: str, **arguments: Any) -> None:
        self.sent += 1
        request = {"seq": self.sent, "type": "request", "command": command}
        self.socket.sendall(frame(request | {"arguments": arguments}))

    def until(self, **wanted: Any) -> dict[str, Any]:
        """The next message with these values."""
        while header := self.file.readline():
            length = int(header.partition(b":")[2])
            self.file.readline()
            message: dict[str, Any] = json.loads(self.file.read(length))
            if wanted.items() <= message.items():
                return message
        raise AssertionError(f"the connection ended before {wanted}")

    def close(self) -> None:
        self.file.close()
        self.socket.close()


def attach(to: tuple[str, int], **arguments: Any) -> Editor:
    """An editor that has connected and asked to attach."""
    editor = Editor(to)
    editor.send("initialize", adapterID="debugpy", pathFormat="path")
    editor.send("attach", justMyCode=True, **arguments)
    return editor
