"""The object stores as Go programs: a pinned module, and one file of this project added to it.

What is built from them lies in a cache that all stacks of a user share.
"""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from cluster import shipped
from infra import versions
from infra.hosts import local

DOCKER = shipped.FOLDER / "docker"
DIGEST_LENGTH = 8  # hexadecimal digits: enough to tell the states of one file apart


@dataclass(frozen=True, kw_only=True)
class GoProgram:
    """A program that Go builds.

    Attributes:
        name: of it.
        module: Go's name of its sources.
        version: of the module.
        sum: digest of the module, as Go's checksum database has it.
        package: of its main function, relative to the module.
        added: our file.
        into: folder of the module that the file is added to.
    """

    name: str
    module: str
    version: str
    sum: str
    package: str
    added: Path
    into: str

    @property
    def path(self) -> Path:
        """Path in the cache: of other sources it is another one."""
        digest = sha256(self.added.read_bytes()).hexdigest()[:DIGEST_LENGTH]
        return local.cache_folder() / "bin" / f"{self.name}-{self.version}-{digest}"


MINIO = GoProgram(
    name="minio",
    module=versions.MINIO_MODULE,
    version=versions.MINIO,
    sum=versions.MINIO_SUM,
    package=".",
    added=DOCKER / "minio" / "guard.go",
    into="cmd",
)
VERSITYGW = GoProgram(
    name="versitygw",
    module=versions.VERSITYGW_MODULE,
    version=versions.VERSITYGW,
    sum=versions.VERSITYGW_SUM,
    package="./cmd/versitygw",
    added=DOCKER / "versitygw" / "start.go",
    into="cmd/versitygw",
)
PROGRAMS = {program.name: program for program in (VERSITYGW, MINIO)}
DEFAULT = VERSITYGW.name  # docs/object-store.md compares
