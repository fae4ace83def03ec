"""An image registry on loopback: the part of OCI's distribution API that a pull needs.

A real Docker Engine pulls from it. `answers` makes it refuse a tag with another status.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
TOKEN = "registry-token"


def sha256(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


@dataclass
class Registry:
    """The content and behaviour of a registry.

    Attributes:
        port: of 127.0.0.1.
        manifests: by repository and by tag or digest.
        blobs: by digest.
        answers: statuses other than 200, by tag.
        headers: that go with them, by tag.
        asks_for_token: whether requests need the token, which everybody gets.
        asked: method and path of each request.
    """

    port: int = 0
    manifests: dict[tuple[str, str], bytes] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    answers: dict[str, int] = field(default_factory=dict)
    headers: dict[str, dict[str, str]] = field(default_factory=dict)
    asks_for_token: bool = False
    asked: list[tuple[str, str]] = field(default_factory=list)

    def name(self, repository: str, tag: str) -> str:
        """An image's reference."""
        return f"127.0.0.1:{self.port}/{repository}:{tag}"

    def put(self, repository: str, tag: str, text: str) -> str:
        """Put an image of one file there; its digest is returned."""
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w") as tar:
            entry = tarfile.TarInfo("text")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
        layer = gzip.compress(file.getvalue(), mtime=0)
        rootfs = {"type": "layers", "diff_ids": [sha256(file.getvalue())]}
        config = json.dumps(
            {"architecture": "amd64", "os": "linux", "config": {}, "rootfs": rootfs}
        ).encode()
        kind = "application/vnd.docker"
        described = [
            {"mediaType": media, "size": len(content), "digest": sha256(content)}
            for media, content in (
                (f"{kind}.container.image.v1+json", config),
                (f"{kind}.image.rootfs.diff.tar.gzip", layer),
            )
        ]
        body = {"schemaVersion": 2, "mediaType": MANIFEST}
        manifest = json.dumps(body | {"config": described[0], "layers": described[1:]}).encode()
        self.blobs |= {sha256(config): config, sha256(layer): layer}
        self.manifests |= {(repository, each): manifest for each in (tag, sha256(manifest))}
        return sha256(manifest)


class _Handler(BaseHTTPRequestHandler):
    registry: ClassVar[Registry]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        registry = self.registry
        registry.asked.append((self.command, self.path))
        if self.path.startswith("/token"):
            self._send(200, json.dumps({"token": TOKEN}).encode())
            return
        if registry.asks_for_token and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            realm = f'Bearer realm="http://127.0.0.1:{registry.port}/token",service="fake"'
            self._send(401, b"{}", {"WWW-Authenticate": realm})
            return
        repository, kind, name = self._split()
        if name in registry.answers:
            self._send(registry.answers[name], b"{}", registry.headers.get(name, {}))
        elif kind == "manifests" and (repository, name) in registry.manifests:
            content = registry.manifests[repository, name]
            self._send(200, content, {"Docker-Content-Digest": sha256(content)}, MANIFEST)
        elif kind == "blobs" and name in registry.blobs:
            self._send(200, registry.blobs[name], kind="application/octet-stream")
        else:
            self._send(200 if self.path == "/v2/" else 404, b"{}")

    do_HEAD = do_GET  # noqa: N815 - as the base names it

    def _split(self) -> tuple[str, str, str]:
        for kind in ("manifests", "blobs"):
            before, found, name = self.path.partition(f"/{kind}/")
            if found:
                return before.removeprefix("/v2/"), kind, name
        return "", "", ""

    def _send(
        self,
        status: int,
        content: bytes,
        headers: dict[str, str] | None = None,
        kind: str = "application/json",
    ) -> None:
        self.send_response(status)
        for name, value in ({"Content-Type": kind} | (headers or {})).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextmanager
def running() -> Iterator[Registry]:
    """An empty registry that answers."""
    registry = Registry()
    handler = type("Handler", (_Handler,), {"registry": registry})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        registry.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
