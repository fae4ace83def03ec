"""Builds the images that tests use, from Debian's packages and what this machine has.

No image registry is needed. `python tests/images/build.py` makes all of them; with names only these
and their parents. Existing images that would come out the same are left alone. The
images stay: they are the cache of the next run.

Only Grafana has no package: its image is a stand-in, and says so.
"""

import contextlib
import fcntl
import functools
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from infra.settings import build_context, versions

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DEBIAN = "debian:bookworm-slim"
PREFIX = "trainyard-test/"
LABEL = "trainyard-test.recipe"
OWN_CERTIFICATES = Path("/usr/local/share/ca-certificates")
BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
# Settings that give apt, pip, uv and Go another way out of the machine than the usual one.
NETWORK = (
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX"),
)
GO_NETWORK = ("GOPROXY", "GONOPROXY", "GOSUMDB", "GONOSUMDB", "GOPRIVATE", "GOINSECURE")
GO_FOLDERS = ("bin", "lib", "pkg", "src", "VERSION", "go.env")
CREDENTIALS = re.compile(r"//[^/\s]*@")
LAST_LINES = 20
# As in the official image: apt's downloads are not part of a layer. Set at the end, because
# mmdebstrap itself needs its downloads until then.
KEEP_NO_PACKAGES = (
    "--customize-hook=echo 'APT::Keep-Downloaded-Packages \"false\";' "
    '> "$1/etc/apt/apt.conf.d/docker-clean"'
)


class ImageError(Exception):
    """An image is not available; the message says what would help."""


@dataclass(frozen=True)
class Recipe:
    """The recipe of an image.

    Attributes:
        parents: images that it is made from.
        context: returns the files that the build may read.
        arguments: build arguments.
        inputs: returns what decides its content, where that is not the context's content.
    """

    parents: tuple[str, ...]
    context: Callable[[], dict[str, bytes | Path]]
    arguments: tuple[str, ...] = ()
    inputs: Callable[[], str] = str


def main(names: list[str]) -> int:
    """Make the images of these names, or all."""
    unknown = sorted(set(names) - set(RECIPES))
    if unknown:
        _say(f"error: unknown image {', '.join(unknown)}: it is one of {', '.join(RECIPES)}")
        return 2
    # Simultaneous runs build each image once: the lock is this file, so nothing is left.
    with Path(__file__).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            _make(names or list(RECIPES))
        except ImageError as error:
            _say(f"error: {error}")
            return 1
    return 0


def _make(names: list[str]) -> None:
    wanted: list[str] = []
    for name in names:
        for image in (*_ancestors(name), name):
            if image not in wanted:
                wanted.append(image)
    _have_debian()
    made = _recipes_of_existing(wanted)
    for name in wanted:
        recipe = _digest(name)
        if made.get(name) != recipe:
            _build(name, recipe)


def _ancestors(name: str) -> list[str]:
    found: list[str] = []
    for parent in RECIPES[name].parents:
        found += [*_ancestors(parent), parent]
    return found


@functools.cache
def _digest(name: str) -> str:
    """Return a digest of an image's recipe, its context and its parents."""
    recipe = RECIPES[name]
    digest = hashlib.sha256()
    digest.update(repr(recipe.arguments).encode())
    for parent in recipe.parents:
        digest.update(_digest(parent).encode())
    if not recipe.parents:
        digest.update(_docker("image", "inspect", "--format={{.Id}}", DEBIAN).encode())
    digest.update(recipe.inputs().encode())
    for path, content in sorted(recipe.context().items()):
        digest.update(path.encode())
        if isinstance(content, bytes):
            digest.update(content)
    return digest.hexdigest()


def _have_debian() -> None:
    """Have Debian's image: the existing one, a registry's, or one of Debian's packages."""
    if _docker("image", "ls", "--quiet", DEBIAN):
        return
    pull = subprocess.run(
        ["docker", "pull", "--quiet", DEBIAN], capture_output=True, timeout=600, check=False
    )
    if pull.returncode == 0:
        return
    if not shutil.which("mmdebstrap"):
        raise ImageError(
            f"no image {DEBIAN}, and no registry that has it: install mmdebstrap, "
            f"which makes it of Debian's packages, or load one with `docker load`"
        )
    with _timed(DEBIAN, "mmdebstrap"):
        packages = subprocess.Popen(
            ["mmdebstrap", "--quiet", "--variant=minbase", KEEP_NO_PACKAGES, "bookworm", "-"],
            stdout=subprocess.PIPE,
        )
        imported = subprocess.run(
            ["docker", "import", "-", DEBIAN],
            stdin=packages.stdout,
            capture_output=True,
            check=False,
        )
        if packages.wait() or imported.returncode:
            raise ImageError(
                f"mmdebstrap could not make {DEBIAN}: {imported.stderr.decode().strip()}"
            )


def _recipes_of_existing(names: list[str]) -> dict[str, str]:
    """Return the recipes of the existing images."""
    done = subprocess.run(
        ["docker", "image", "inspect", *(f"{PREFIX}{name}" for name in names)],
        capture_output=True,
        text=True,
        check=False,  # it fails for each one that is missing, and shows the others
    )
    return {
        tag.removeprefix(PREFIX).removesuffix(":latest"): (image["Config"]["Labels"] or {}).get(
            LABEL, ""
        )
        for image in json.loads(done.stdout or "[]")
        for tag in image["RepoTags"]
    }


def _build(name: str, recipe: str) -> None:
    arguments = [f"--build-arg={argument}" for argument in RECIPES[name].arguments]
    before = _docker("image", "ls", "--quiet", PREFIX + name)
    with _timed(PREFIX + name, "docker build"):
        build = subprocess.Popen(
            [
                *("docker", "build", "--force-rm", f"--tag={PREFIX}{name}"),
                *(f"--label={LABEL}={recipe}", *arguments, "-"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert build.stdin is not None
        assert build.stdout is not None
        with (
            contextlib.suppress(BrokenPipeError),  # a build that ends early says why
            build.stdin,
            tarfile.open(fileobj=build.stdin, mode="w|") as context,
        ):
            for path, content in sorted(RECIPES[name].context().items()):
                _add(context, path, content)
        output = build.stdout.read().decode(errors="replace")
        if build.wait():
            last = "\n".join(f"  {line}" for line in output.splitlines()[-LAST_LINES:])
            raise ImageError(f"docker build of {PREFIX}{name} failed; its last lines:\n{last}")
    if before and before != _docker("image", "ls", "--quiet", PREFIX + name):
        # Gigabytes that nobody would find again; layers still in use stay.
        subprocess.run(["docker", "image", "rm", before], capture_output=True, check=False)


def _add(context: tarfile.TarFile, path: str, content: bytes | Path) -> None:
    if isinstance(content, Path):
        context.add(content, path)
        return
    entry = tarfile.TarInfo(path)
    entry.size = len(content)
    entry.mode = 0o755 if content.startswith(b"#!") else 0o644
    context.addfile(entry, io.BytesIO(content))


def _base() -> dict[str, bytes | Path]:
    """Debian, with this machine's way to the package registries where that is its own."""
    certificates = sorted(OWN_CERTIFICATES.glob("*.crt"))
    files: dict[str, bytes | Path] = {
        f"own/{path.name}": path.read_bytes() for path in certificates
    }
    lines = [f"FROM {DEBIAN}", *_environment_lines(dict(os.environ), NETWORK)]
    if certificates:
        # Both: the bundle for now, and what Debian's package makes a bundle from once installed.
        files["bundle.crt"] = BUNDLE.read_bytes()
        lines += [
            f"COPY own/ {OWN_CERTIFICATES}/",
            f"COPY bundle.crt {BUNDLE}",
            f"ENV SSL_CERT_FILE={BUNDLE} PIP_CERT={BUNDLE}",
        ]
    files["Dockerfile"] = "\n".join(lines).encode()
    return files


def _go() -> dict[str, bytes | Path]:
    """This machine's Go, where a registry would have GO_IMAGE."""
    settings = _go_environment()
    root = Path(settings["GOROOT"])
    files: dict[str, bytes | Path] = {f"go/{name}": root / name for name in GO_FOLDERS}
    lines = [
        f"FROM {PREFIX}base",
        "COPY go /usr/local/go",
        "ENV GOPATH=/go PATH=/go/bin:/usr/local/go/bin:$PATH",
        *_environment_lines(settings, GO_NETWORK),
    ]
    files["Dockerfile"] = "\n".join(lines).encode()
    return files


def _go_version() -> str:
    return _go_environment()["GOVERSION"]


@functools.cache
def _go_environment() -> dict[str, str]:
    try:
        done = subprocess.run(
            ["go", "env", "-json", "GOROOT", "GOVERSION", *GO_NETWORK],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ImageError(
            f"no Go on PATH, which builds the object stores: install Go 1.25 or later ({error})"
        ) from None
    settings: dict[str, str] = json.loads(done.stdout)
    return settings


def _environment_lines(environment: dict[str, str], names: tuple[str, ...]) -> list[str]:
    lines = []
    for name in names:
        if not (value := environment.get(name)):
            continue
        if CREDENTIALS.search(value):
            _say(f"{name} holds a password: it stays out of the images")
            continue
        quoted = json.dumps(value).replace("$", "\\$")  # a build would replace what follows it
        lines.append(f"ENV {name}={quoted}")
    return lines


def _folder(path: Path) -> dict[str, bytes | Path]:
    return {
        str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()
    }


def _docker(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["docker", *arguments], capture_output=True, text=True, check=True, timeout=60
        )
    except FileNotFoundError:
        raise ImageError("no docker on PATH: install a Docker Engine and its client") from None
    except subprocess.CalledProcessError as error:
        raise ImageError(f"docker {' '.join(arguments)}: {error.stderr.strip()}") from None
    return done.stdout.strip()


class _timed:  # noqa: N801 - used as a function
    """Says which image is made, from what, and how long it took."""

    def __init__(self, name: str, how: str) -> None:
        self.name, self.how = name, how

    def __enter__(self) -> None:
        self.started = time.monotonic()
        _say(f"{self.name}: {self.how}")

    def __exit__(self, kind: object, *_rest: object) -> None:
        if kind is None:
            _say(f"{self.name}: {time.monotonic() - self.started:.0f} s")


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _stand_in(name: str, *arguments: str) -> Recipe:
    return Recipe(("base",), functools.partial(_folder, HERE / name), arguments)


def _ours(name: str, *parents: str, arguments: tuple[str, ...] = ()) -> Recipe:
    base = f"BASE_IMAGE={PREFIX}base"
    return Recipe(
        ("base", *parents),
        lambda: _folder(build_context.folder(name, ROOT / "docker")),
        (base, *arguments),
    )


RECIPES = {
    "base": Recipe((), _base),
    "go": Recipe(("base",), _go, inputs=_go_version),
    "prometheus": _stand_in("prometheus"),
    "gateway": _stand_in("gateway"),
    "grafana": _stand_in("grafana"),
    "dataset": _ours("dataset"),
    "jupyter": _ours("jupyter"),
    "mlflow": _ours("mlflow"),
    "minio": _ours(
        "minio",
        "go",
        arguments=(
            f"GO_IMAGE={PREFIX}go",
            f"MINIO_VERSION={versions.MINIO}",
            f"MINIO_SUM={versions.MINIO_SUM}",
        ),
    ),
    "versitygw": _ours(
        "versitygw",
        "go",
        arguments=(
            f"GO_IMAGE={PREFIX}go",
            f"VERSITYGW_VERSION={versions.VERSITYGW}",
            f"VERSITYGW_SUM={versions.VERSITYGW_SUM}",
        ),
    ),
    "ray": _ours("ray"),
    "ray-alone": _stand_in("ray-alone", f"RAY_VERSION={versions.RAY}"),
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
