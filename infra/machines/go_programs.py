"""Programs that Go builds: a pinned module each, most with files of this project added.

The built programs are in a cache that all stacks of a user share.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from cluster import dashboard
from infra.machines import local
from infra.operate.checkout import ROOT
from infra.settings import versions

DOCKER = ROOT / "docker"
PAGES = Path(__file__).parent / "pages"
DIGEST_LENGTH = 8  # hexadecimal digits: enough to tell the states of one file apart
NOTE = ".sha256"  # suffix of the file with a program's digest


@dataclass(frozen=True, kw_only=True)
class GoProgram:
    """A program that Go builds.

    Attributes:
        module: Go's name of its sources.
        sum: digest of the module, as Go's checksum database has it.
        package: of its main function, relative to the module.
        added: files of ours, by their paths in the module; they may replace files there.
        go: the least Go that builds it.
        instead: what to do where it cannot be built.
    """

    name: str
    module: str
    version: str
    sum: str
    package: str
    added: Mapping[str, Path] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    go: tuple[int, int]
    instead: str

    @property
    def path(self) -> Path:
        """Path in the cache; it changes with files and flags."""
        made_of = [path.read_bytes() for path in self.added.values()]
        digest = sha256(b"".join([*made_of, *map(str.encode, self.flags)])).hexdigest()
        return _folder() / f"{self.name}-{self.version}-{digest[:DIGEST_LENGTH]}"

    @property
    def obtainable(self) -> bool:
        """Whether it is in the cache, or the Go on PATH can build it."""
        return self.path.exists() or (local.go_version() or (0,)) >= self.go

    @property
    def was_built(self) -> bool:
        """Whether the cache has it, in this version or another."""
        return any(_folder().glob(f"{self.name}-v*{NOTE}"))


def _folder() -> Path:
    return local.cache_folder() / "bin"


PACKAGES = "Install the packages prometheus and prometheus-alertmanager of your distribution"
OTHER_STORE = "Set objectStore to another store, or to directory"
MINIO = GoProgram(
    name="minio",
    module=versions.MINIO_MODULE,
    version=versions.MINIO,
    sum=versions.MINIO_SUM,
    package=".",
    added={"cmd/guard.go": DOCKER / "minio" / "guard.go"},
    go=versions.GO_FOR_STORES,
    instead=OTHER_STORE,
)
VERSITYGW = GoProgram(
    name="versitygw",
    module=versions.VERSITYGW_MODULE,
    version=versions.VERSITYGW,
    sum=versions.VERSITYGW_SUM,
    package="./cmd/versitygw",
    added={"cmd/versitygw/start.go": DOCKER / "versitygw" / "start.go"},
    go=versions.GO_FOR_STORES,
    instead=OTHER_STORE,
)
STORES = {program.name: program for program in (VERSITYGW, MINIO)}
DEFAULT = VERSITYGW.name  # docs/object-store.md compares


def _release(version: str) -> str:
    """Return the release that a version of Prometheus' module is: v0.316.0 is 3.16.0."""
    _, number, patch = version.split(".")
    return f"{int(number) // 100}.{int(number) % 100}.{patch}"


def _linked(release: str) -> str:
    return f"-ldflags=-s -w -X github.com/prometheus/common/version.Version={release}"


# The modules lack the makers' pages: building these takes hundreds of npm packages.
PROMETHEUS = GoProgram(
    name="prometheus",
    module=versions.PROMETHEUS_MODULE,
    version=versions.PROMETHEUS,
    sum=versions.PROMETHEUS_SUM,
    package="./cmd/prometheus",
    added={
        "web/ui/ui.go": PAGES / "prometheus.go",
        "web/ui/static/mantine-ui/index.html": PAGES / "prometheus.html",
        "web/ui/static/mantine-ui/assets/dashboard.json": dashboard.FILE,
    },
    # Ray's nodes are found by HTTP. The other ways are the APIs of 25 clouds.
    flags=("-tags=remove_all_sd", _linked(_release(versions.PROMETHEUS))),
    go=versions.GO_FOR_MONITORING,
    instead=PACKAGES,
)
ALERTMANAGER = GoProgram(
    name="alertmanager",
    module=versions.ALERTMANAGER_MODULE,
    version=versions.ALERTMANAGER,
    sum=versions.ALERTMANAGER_SUM,
    package="./cmd/alertmanager",
    added={
        "ui/web.go": PAGES / "alertmanager.go",
        "ui/page.html": PAGES / "alertmanager.html",
    },
    flags=(_linked(versions.ALERTMANAGER.removeprefix("v")),),
    go=versions.GO_FOR_MONITORING,
    instead=PACKAGES,
)
MONITORING = {program.name: program for program in (PROMETHEUS, ALERTMANAGER)}
# They check rules, query and silence alerts; no stack runs them.
TOOLS = {
    program.name: program
    for program in (
        replace(PROMETHEUS, name="promtool", package="./cmd/promtool", added={}),
        replace(ALERTMANAGER, name="amtool", package="./cmd/amtool", added={}),
    )
}
PROGRAMS = STORES | MONITORING  # what stacks run
