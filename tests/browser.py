"""Drives Debian's Chromium by its DevTools protocol: the page as a user sees it."""

import base64
import itertools
import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from websockets.sync.client import ClientConnection, connect

PROGRAM = shutil.which("chromium")
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--remote-debugging-port=0",
)
LISTENS = re.compile(r"DevTools listening on (ws://\S+)")
DEADLINE_S = 30.0
POLL_S = 0.05
DESKTOP, PHONE = (1280, 900), (390, 844)
KEYS = {"Enter": "\r", "Tab": "", "Escape": "", " ": " "}


class Page:
    """One tab.

    Attributes:
        errors: what the page reported: exceptions, and blocked content.
    """

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._numbers = itertools.count(1)
        self._session: str | None = None
        self.errors: list[str] = []

    def open(self) -> Self:
        """Attaches to a new tab."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        found = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = found["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        return self

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Calls a method of the protocol; returns its result."""
        number = next(self._numbers)
        request = {"id": number, "method": method, "params": params}
        if self._session:
            request["sessionId"] = self._session
        self._connection.send(json.dumps(request))
        while True:
            found = json.loads(self._connection.recv(DEADLINE_S))
            self._note(found)
            if found.get("id") == number:
                if "error" in found:
                    raise RuntimeError(f"{method}: {found['error']}")
                return dict(found["result"])

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"])[:500])
        elif message.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    def go(self, address: str) -> None:
        self.call("Page.navigate", url=address)

    def value(self, expression: str) -> Any:
        """The value of JavaScript, which the protocol evaluates whatever the page's policy."""
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def wait(self, expression: str) -> Any:
        """Waits until JavaScript has a value that is true; returns it."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            with suppress(RuntimeError):  # the page is being loaded
                if found := self.value(expression):
                    return found
            if time.monotonic() > deadline:
                text = self.value("document.body?.innerText ?? ''")
                raise TimeoutError(f"{expression}; errors: {self.errors}; the page: {text[:2000]}")
            time.sleep(POLL_S)

    def wait_text(self, text: str) -> None:
        self.wait(f"document.body.innerText.includes({json.dumps(text)})")

    def press(self, key: str) -> None:
        """Presses a key, as a keyboard does."""
        code = {"Enter": 13, "Tab": 9, "Escape": 27, " ": 32}[key]
        for kind in ("keyDown", "keyUp"):
            typed = {"text": KEYS[key]} if kind == "keyDown" and KEYS[key] else {}
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **typed
            )

    def type(self, text: str) -> None:
        """Types a text where the focus is."""
        self.call("Input.insertText", text=text)

    def size(self, width: int, height: int) -> None:
        """Sets the size of the window, in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def scheme(self, name: str) -> None:
        """Prefers `dark` or `light`."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def picture(self, path: Path) -> None:
        """Saves what is seen as PNG."""
        found = self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(found["data"]))

    def names(self) -> list[tuple[str, str]]:
        """Role and name of each element, as screen readers get them."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [
            (each["role"]["value"], each.get("name", {}).get("value", ""))
            for each in nodes
            if not each.get("ignored")
        ]


@contextmanager
def page() -> Iterator[Page]:
    """Yield a tab of a Chromium of its own, which ends with it."""
    with tempfile.TemporaryDirectory(prefix="ty-browser-") as folder:
        process = subprocess.Popen(
            [str(PROGRAM), *OPTIONS, f"--user-data-dir={folder}", "about:blank"],
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stderr is not None
            address = next(
                found[1] for line in process.stderr if (found := LISTENS.search(line)) is not None
            )
            with connect(address, max_size=None) as connection:
                yield Page(connection).open()
                connection.send(json.dumps({"id": 0, "method": "Browser.close"}))
            process.wait(DEADLINE_S)
        finally:
            process.kill()
            process.communicate()
