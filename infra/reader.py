"""Reads values from raw settings and notes their faults; knows no setting itself.

A fault is a line that names the key, its value, the bound and what to do. None of them ends the
reading: a value that cannot be used is replaced by a harmless one, and the reader's owner reports
all faults together.
"""

import difflib
import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

WHOLE = re.compile(r"-?\d{1,18}", re.ASCII)
SECRET_NAME = re.compile(r"TOKEN|PASSW|SECRET|KEY|CREDENTIAL", re.IGNORECASE)
SECRET_PAIR = re.compile(rf"(?:{SECRET_NAME.pattern})\w*[\"']?\s*[=:]", re.IGNORECASE)
NOT_SHOWN = "(not shown)"
CREDENTIALS = re.compile(r"://[^/@\s]+@")  # in an address, before the host


class Reader:
    """Raw settings, and their faults so far.

    Attributes:
        raw: text of each setting, objects and arrays as JSON.
        faults: a line for each fault.
    """

    def __init__(self, raw: Mapping[str, str]) -> None:
        self.raw = raw
        self.faults: list[str] = []

    def fault(self, key: str, value: object, bound: str, action: str) -> None:
        """Note a fault; a value that looks like a secret is not shown."""
        shown = value if isinstance(value, str) else json.dumps(value)
        if SECRET_NAME.search(key) or SECRET_PAIR.search(shown) or CREDENTIALS.search(shown):
            shown = NOT_SHOWN
        self.faults.append(f"{key} = {shown!r}: {bound}; {action}")

    def unknown(self, key: str, value: object, name: str, known: Collection[str]) -> None:
        """Note a name that does not exist, with the one that may have been meant."""
        near = difflib.get_close_matches(name, known, n=1)
        action = f"remove it, or use one of {', '.join(known)}"
        if near and SECRET_NAME.search(near[0]):
            value = NOT_SHOWN
        self.fault(key, value, "no such setting", f"did you mean {near[0]}?" if near else action)

    def text(self, key: str) -> str:
        """Return the text of a setting, without the blanks around it: they mean nothing."""
        if key not in self.raw:
            self.faults.append(
                f"{key} is not set: the engine passes on the defaults of Pulumi.yaml; "
                f"run it in the project's folder, or set {key}"
            )
            return ""
        return self.raw[key].strip()

    def matching(
        self, key: str, pattern: re.Pattern[str], bound: str, action: str, *, shown: bool = True
    ) -> str:
        """Return a text that has to match a pattern; one that may be a secret is not shown."""
        text = self.text(key)
        if key in self.raw and not pattern.fullmatch(text):
            self.fault(key, text if shown else NOT_SHOWN, bound, action)
        return text

    def integer(self, key: str, low: int, high: int) -> int:
        """Return a whole number."""
        text = self.text(key)
        if key in self.raw and not (WHOLE.fullmatch(text) and low <= int(text) <= high):
            self.fault(
                key, text, f"must be a whole number from {low} to {high}", f"set {key} within it"
            )
        return int(text) if WHOLE.fullmatch(text) else low

    def boolean(self, key: str) -> bool:
        """Return whether a setting is true."""
        text = self.text(key)
        if key in self.raw and text not in ("true", "false"):
            self.fault(key, text, "must be true or false", f"set {key} to one of them")
        return text == "true"

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        """Return one of some words."""
        text = self.text(key)
        if key in self.raw and text not in choices:
            bound = f"must be one of {', '.join(choices)}"
            self.fault(key, text, bound, f"set {key} to one of them")
        return text

    def folder(self, key: str, default: Path) -> Path:
        """Return the path of a folder; the default for an empty text."""
        text = self.text(key)
        if text:
            self.check_path(key, text)
        return Path(text) if text else default

    def check_path(self, key: str, text: str) -> None:
        """Note a path that is not absolute or not plain."""
        path = Path(text)
        if not path.is_absolute() or ".." in path.parts or not text.isprintable():
            bound = "must be an absolute path without '..'"
            self.fault(key, text, bound, "write the path from / on")

    def object(self, key: str, action: str) -> dict[str, Any]:
        """Return an object; an empty one if the text is not an object."""
        value = self._json(self.text(key))
        if key in self.raw and not isinstance(value, dict):
            self.fault(key, self.raw[key], "must be an object", action)
        return value if isinstance(value, dict) else {}

    def array(self, key: str, action: str) -> list[Any]:
        """Return an array; an empty one if the text is not an array."""
        value = self._json(self.text(key))
        if key in self.raw and not isinstance(value, list):
            self.fault(key, self.raw[key], "must be an array", action)
        return value if isinstance(value, list) else []

    def fields(self, key: str) -> list[str]:
        """Return the names of an object's fields; none if it is not an object."""
        value = self._json(self.raw.get(key, ""))
        return list(value) if isinstance(value, dict) else []

    @staticmethod
    def _json(text: str) -> Any:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return None
