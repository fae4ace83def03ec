"""Object stores as a stack starts them, without a stack: the same arguments, files and folders."""

import json
import os
import secrets
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import requests
from botocore.config import Config
from botocore.exceptions import ClientError

from cluster.object_store import KEY_BYTES, SECRET_BYTES
from cluster.service import Service, Volume
from cluster.storage import REGION
from cluster.store_kind import Keys, StoreKind
from tests.ports import free_ports
from tests.waiting import wait_for
from trainyard.store import objects

START_SECONDS = 60.0
POLL_SECONDS = 0.05
BUCKET = "ray"


def new_keys() -> Keys:
    """Keys as a stack draws them."""
    return Keys(access=secrets.token_hex(KEY_BYTES), secret=secrets.token_hex(SECRET_BYTES))


def forget_clients() -> None:
    """Have this process read the environment's keys again: it keeps them, and its clients."""
    objects._environments_keys.cache_clear()
    objects._client.cache_clear()


@dataclass(frozen=True, kw_only=True)
class _Place:
    """A runtime that knows paths and addresses, and places nothing."""

    files: str
    volumes: str

    def listen_address(self, _service: str) -> str:
        return "127.0.0.1"

    def public(self, _service: str, port: int) -> str:
        return f"127.0.0.1:{port}"

    def file(self, _service: str, name: str) -> str:
        return f"{self.files}/{name}"

    def volume(self, _service: str, volume: Volume) -> str:
        return f"{self.volumes}/{volume.name}"


@dataclass
class BareStore:
    """A store as a process that can be killed and started again, on the same port and data.

    Attributes:
        kind: which one.
        binary: the program.
        folder: of its data.
        files: of the keys of its root; in `folder` by default.
    """

    kind: StoreKind
    binary: Path
    folder: Path
    files: Path | None = None
    root: Keys = field(default_factory=new_keys)
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.port, self._console = free_ports(2)
        self.files = self.files or self.folder / "files"
        write_root(self.files, self.root)
        self.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def props(self) -> dict[str, Any]:
        """The properties that resources inside of it are made from."""
        return _props(self.port, self.root)

    @property
    def s3(self) -> Any:
        """A client of its root."""
        return client(self.endpoint, self.root)

    def start(self) -> None:
        place: Any = _Place(files=str(self.files), volumes=str(self.folder))
        service = self.kind.service(place, self.port, self._console, self.root)
        for volume in service.volumes:
            Path(place.volume("", volume)).mkdir(exist_ok=True)
        log = self.folder / "log"
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [self.binary, *_texts(service.arguments)],
                env=os.environ | _environment(service),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self.folder,
            )
        try:
            _await(self.port, service, self.process.poll, log.read_text)
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def bare(
    kind: StoreKind, binary: Path, folder: Path, *, bucket: bool = True
) -> Iterator[BareStore]:
    """A store with its bucket while the block runs."""
    store = BareStore(kind, binary, folder)
    try:
        if bucket:
            wait_for("a store that makes buckets", lambda: _has_made_bucket(store.s3), 30)
        yield store
    finally:
        store.kill()


def _has_made_bucket(s3: Any) -> bool:
    """Make the bucket; False where MinIO, which answers by then, is not ready for it."""
    try:
        s3.create_bucket(Bucket=BUCKET)
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] != 503:
            raise
        return False
    return True


def client(endpoint: str, keys: Keys, **more: Any) -> Any:
    """An S3 client that does not try again."""
    login: dict[str, Any] = {
        "aws_access_key_id": keys.access,  # an input of a resource may also be a promise
        "aws_secret_access_key": keys.secret,
    }
    return boto3.client(
        "s3",
        **login,
        endpoint_url=endpoint,
        region_name=REGION,
        config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}, **more),
    )


def client_of(outputs: Mapping[str, Any], **more: Any) -> Any:
    """The same for the store of a stack, with its jobs' rights."""
    keys = Keys(access=outputs["accessKey"], secret=outputs["secretKey"])
    return client(outputs["objectStoreEndpoint"], keys, **more)


def status_of(endpoint: str, bucket: str, keys: Keys) -> int:
    """The status of the answer to a listing of a bucket, also of a refusal."""
    try:
        answer = client(endpoint, keys).list_objects_v2(Bucket=bucket)
    except ClientError as error:
        answer = error.response
    return int(answer["ResponseMetadata"]["HTTPStatusCode"])


def _props(port: int, root: Keys) -> dict[str, Any]:
    return {
        "endpoint": f"127.0.0.1:{port}",
        "rootUser": root.access,
        "rootPassword": root.secret,
        "bucket": BUCKET,
    }


def write_root(folder: Path, root: Keys) -> None:
    """Write the files from which a store reads the keys of its root."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in (("root-user", root.access), ("root-password", root.secret)):
        (folder / name).touch(mode=0o600)
        (folder / name).write_text(str(value))


def _texts(arguments: Sequence[Any]) -> list[str]:
    return [str(argument) for argument in arguments]


def _environment(service: Service) -> dict[str, str]:
    return {key: str(value) for key, value in service.environment.items()}


def _await(port: int, service: Service, ended: Any, log: Any) -> None:
    (check,) = service.health
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            if requests.get(f"http://127.0.0.1:{port}{check.path}", timeout=2).ok:
                return
        except requests.RequestException:
            pass
        if ended() is not None or time.monotonic() > deadline:
            raise AssertionError(f"{service.name} did not come up:\n{log()[-2000:]}")
        time.sleep(POLL_SECONDS)


def text(value: Any) -> str:
    """JSON, as policies are written."""
    return json.dumps(value)
