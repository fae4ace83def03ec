"""The archive of `train debug-dump`: bounded, for its user only, with an index of what is in it."""

import io
import os
import tarfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import TimeoutError as LateError
from pathlib import Path
from typing import Any

from trainyard.access import markdown, parallel, terminal
from trainyard.client.dump.masks import Masks
from trainyard.client.errors import writing

MOST_FILE = 2**20  # characters of a file
MOST_ALL = 50 * 2**20  # bytes of all files
LOOK = (
    "Known secrets, and what looks like one, are replaced by `***`. What your code prints is not, "
    "nor are names of machines, users and runs: look at each file before you send this."
)


class Archive:
    """Files by name, each without secrets, and why others are missing."""

    def __init__(self, masks: Masks) -> None:
        self.files: dict[str, bytes] = {}
        self.unread: dict[str, str] = {}
        self._masks = masks
        self._cut: dict[str, str] = {}

    def add(self, name: str, found: Any) -> None:
        """Keep a text, or a value as JSON: the last lines of a log, the first of another file."""
        text = found if isinstance(found, str) else terminal.as_json(found, 1)
        if len(text) > MOST_FILE:
            first = name.endswith(".json")
            self._cut[name] = f", the {'beginning' if first else 'end'} of {len(text)}"
            # No half line: it may have half a secret.
            begin, end = text[:MOST_FILE].rpartition("\n"), text[-MOST_FILE:].partition("\n")
            text = begin[0] if first else end[2]
        content = self._masks.hide(text).encode(errors="replace")
        if sum(map(len, self.files.values())) + len(content) > MOST_ALL:
            self.miss(name, f"the files before it have {MOST_ALL >> 20} MiB")
        else:
            self.files[name] = content

    def miss(self, name: str, why: object) -> None:
        """Note why a part cannot be read."""
        self.unread[name] = self._masks.hide(str(why) or type(why).__name__)[:500]

    def ask(self, parts: Mapping[str, Callable[[], Any]], seconds: float) -> None:
        """Keep what functions return, of those that do so in time; all run at once."""
        asked = {name: parallel.start(make) for name, make in parts.items()}
        until = time.monotonic() + seconds
        for name, answer in asked.items():
            try:
                self.add(name, answer.result(max(0.0, until - time.monotonic())))
            except LateError:
                self.miss(name, f"no answer within {seconds:g} s")
            except Exception as error:  # one part costs no other
                self.miss(name, error)

    def write(self, path: Path, title: str) -> int:
        """Return the size of the new file in bytes; ClientError if it cannot be made."""
        files = {"index.md": self._index(title).encode(), **self.files}
        with writing(path, "name another file, such as `train debug-dump FILE`"):
            opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                with os.fdopen(opened, "wb") as out, tarfile.open(fileobj=out, mode="w:gz") as tar:
                    for name, content in files.items():
                        entry = tarfile.TarInfo(f"debug-dump/{name}")
                        entry.size, entry.mode, entry.mtime = len(content), 0o600, int(time.time())
                        tar.addfile(entry, io.BytesIO(content))
            except OSError:
                path.unlink(missing_ok=True)
                raise
            return path.stat().st_size

    def _index(self, title: str) -> str:
        lines = [f"# {markdown.text(title)}", LOOK, "", "| file | bytes |", "| --- | --- |"]
        for name, content in self.files.items():
            lines.append(f"| {markdown.code(name)} | {len(content)}{self._cut.get(name, '')} |")
        lines += ["", "## Could not be read", ""] if self.unread else []
        lines += [f"- {markdown.code(n)}: {markdown.text(why)}" for n, why in self.unread.items()]
        return "\n".join(lines) + "\n"
