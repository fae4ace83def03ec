"""Faults to order, each for some calls of an operation."""

import threading
from dataclasses import dataclass
from typing import Any, Literal

HTML = "<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
# Code of the API to the status that comes with it.
STATUSES = {
    "global/invalid-api-key": 401,
    "global/account-inactive": 403,
    "global/internal-error": 500,
}


def error_body(code: str, message: str, suggestion: str = "") -> dict[str, Any]:
    error = {"code": code, "message": message}
    return {"error": error | ({"suggestion": suggestion} if suggestion else {})}


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Something that goes wrong.

    Attributes:
        operation: name of the client's method, or * for all.
        action: respond with status and body; drop the connection; delay by seconds.
        commit: whether the request is carried out first.
        body: text, or an object for JSON.
        times: calls that it hits; None means all.
    """

    operation: str
    action: Literal["respond", "drop", "delay"]
    commit: bool = False
    status: int = 500
    body: str | dict[str, Any] = ""
    seconds: float = 0.0
    times: int | None = 1


class Faults:
    """The pending faults. Used by tests and by the server's thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: list[list[Any]] = []  # fault, calls to hit

    def add(self, fault: Fault) -> None:
        with self._lock:
            self._pending.append([fault, fault.times])

    def respond(
        self, operation: str, status: int, body: str | dict[str, Any] = HTML, **how: Any
    ) -> None:
        self.add(Fault(operation=operation, action="respond", status=status, body=body, **how))

    def refuse(self, operation: str, code: str, message: str = "Refused.", **how: Any) -> None:
        self.respond(operation, STATUSES.get(code, 400), error_body(code, message), **how)

    def drop(self, operation: str, *, commit: bool, **how: Any) -> None:
        """Reset the connection in place of an answer."""
        self.add(Fault(operation=operation, action="drop", commit=commit, **how))

    def delay(self, operation: str, seconds: float, *, commit: bool, **how: Any) -> None:
        """Answer later; with commit the request is carried out at once."""
        fault = Fault(operation=operation, action="delay", seconds=seconds, commit=commit, **how)
        self.add(fault)

    def clear(self) -> None:
        with self._lock:
            self._pending.clear()

    def take(self, operation: str) -> Fault | None:
        with self._lock:
            for entry in self._pending:
                fault: Fault = entry[0]
                if fault.operation in (operation, "*"):
                    if entry[1] is not None:
                        entry[1] -= 1
                        if not entry[1]:
                            self._pending.remove(entry)
                    return fault
        return None
