"""Errors that the engine shows its user instead of a traceback."""


class EngineError(Exception):
    """A fault with a message that names the value, the bound and the next action."""


class LockedError(EngineError):
    """Another process works on the stack, or may."""


class SupersededError(EngineError):
    """Another operation has taken the stack: this one must stop, and write no state."""


class UnsupportedError(EngineError):
    """The program asks for something that only the pulumi CLI can do."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the embedded engine does not know {what}: run it with the pulumi CLI")
