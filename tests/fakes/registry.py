"""An image registry on loopback: the part of OCI's distribution API that a pull needs.

A real Docker Engine pulls from it. `answers` makes it refuse a tag with another status.
"""

import gzip
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests import web

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
JSON = "application/json"
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

    def answer(self, request: web.Request) -> web.Said:
        self.asked.append((request.command, request.path))
        if request.path.startswith("/token"):
            return 200, json.dumps({"token": TOKEN}).encode(), {"Content-Type": JSON}
        if self.asks_for_token and request.headers.get("Authorization") != f"Bearer {TOKEN}":
            realm = f'Bearer realm="http://127.0.0.1:{self.port}/token",service="fake"'
            return 401, b"{}", {"Content-Type": JSON, "WWW-Authenticate": realm}
        found = re.fullmatch("/v2/(.*)/(manifests|blobs)/(.*)", request.path)
        repository, kind, name = found.groups() if found else ("", "", "")
        if name in self.answers:
            return self.answers[name], b"{}", {"Content-Type": JSON} | self.headers.get(name, {})
        if kind == "manifests" and (repository, name) in self.manifests:
            content = self.manifests[repository, name]
            digest = {"Docker-Content-Digest": sha256(content)}
            return 200, content, {"Content-Type": MANIFEST} | digest
        if kind == "blobs" and name in self.blobs:
            return 200, self.blobs[name], {"Content-Type": "application/octet-stream"}
        return 200 if request.path == "/v2/" else 404, b"{}", {"Content-Type": JSON}


@contextmanager
def running() -> Iterator[Registry]:
    """An empty registry that answers."""
    registry = Registry()
    with web.serving(registry.answer) as server:
        registry.port = server.server_port
        yield registry
