"""Settings of containers: images, their build, the data volume, allowed networks.

Deliberately absent: any look at the machine. Archives, addresses and images are looked for where
they are used.
"""

import ipaddress
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from infra.hosts import local
from infra.hosts.sources import renting
from infra.images import BUILT, PULLED, pinned, sources
from infra.reader import CREDENTIALS, SECRET_NAME, Reader

VOLUME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{1,254}")
# The grammar of image references: [host[:port]/]path[/path…][:tag][@digest].
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)"
_PATH = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
IMAGE_NAME = rf"(?:(?:{_HOST}(?:\.{_HOST})*|\[[0-9A-Fa-f:]+\])(?::[0-9]+)?/)?{_PATH}(?:/{_PATH})*"
IMAGE_DIGEST = r"(?:sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})"
IMAGE = re.compile(
    rf"(?P<name>{IMAGE_NAME})(?::(?P<tag>\w[\w.-]{{0,127}}))?(?:@(?P<digest>{IMAGE_DIGEST}))?",
    re.ASCII,
)
IMAGE_NAME_LIMIT = 255
BUILD_ARGUMENT = re.compile(r"[A-Z][A-Z0-9_]*")
SHA256 = re.compile(r"[0-9a-f]{64}")
DATASET_SOURCES = ("generate", "url", "archive")
DATASET_FIELDS = (*DATASET_SOURCES, "sha256", "volume")
DATASET_VOLUME = "food11"
CIDR = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}/\d{1,2}", re.ASCII)
EVERYBODY = "0.0.0.0/0"
MIN_PREFIX_LENGTH = 8  # bits: no organisation's own network is larger
MAX_CIDRS = 64


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """The source of the data volume.

    Attributes:
        generate: whether a stand-in is drawn, in place of an archive.
        url: http or https address of the archive, "" for none or a local one.
        archive: path of the archive on this machine, None for none or a remote one.
        sha256: digest of the archive in lowercase, "" for a file of this machine that is taken as
            it is.
        volume: name of the Docker volume.
    """

    generate: bool
    url: str
    archive: Path | None
    sha256: str
    volume: str


def images(reader: Reader) -> dict[str, str]:
    """Return the reference of each program's image that is not built here."""
    programs = (*BUILT, *PULLED)
    given = reader.object("images", f"write image references by program: {', '.join(programs)}")
    for program, reference in given.items():
        if program in programs:
            check_image(reader, f"images.{program}", reference)
        else:
            reader.unknown(f"images.{program}", reference, program, programs)
    return {
        program: pinned(reference) if isinstance(reference, str) else reference
        for program, reference in {**PULLED, **given}.items()
    }


def check_image(reader: Reader, key: str, reference: Any) -> None:
    """Note faults in the reference of an image."""
    found = IMAGE.fullmatch(reference) if isinstance(reference, str) else None
    if found is None or len(found["name"]) > IMAGE_NAME_LIMIT:
        bound = "must be an image reference, [host[:port]/]name:tag or name@sha256:digest"
        reader.fault(key, reference, bound, "write it as docker pull takes it")
    elif found["tag"] is None and found["digest"] is None:
        # Docker would take the tag latest, which is another image tomorrow.
        bound = "must have a tag or a digest"
        reader.fault(key, reference, bound, f"name the version, such as {reference}:1.0")


def check_digest(reader: Reader, key: str, reference: str, action: str) -> None:
    """Note an image whose reference may mean another one tomorrow."""
    if "@" not in reference:
        bound = "must have a digest with requireDigests = true: a tag may move"
        reader.fault(key, reference, bound, f"{action}@sha256:…")


def build_args(reader: Reader) -> dict[str, str]:
    """Return the build arguments of the images that are built here."""
    given = reader.object("buildArgs", "write build arguments by name, such as {BASE_IMAGE: …}")
    for name, value in given.items():
        key = f"buildArgs.{name}"
        why = "anyone who has the image can read its build arguments"
        if SECRET_NAME.search(name):
            reader.fault(key, value, f"must not be a secret: {why}", f"remove {key}")
        elif not BUILD_ARGUMENT.fullmatch(name):
            bound = "must be named in capitals, digits and _ after a capital"
            reader.fault(key, value, bound, "use the name of an ARG in docker/*/Dockerfile")
        elif not isinstance(value, str) or not value.isprintable():
            reader.fault(key, value, "must be a text of one line", "write it in quotes")
        elif CREDENTIALS.search(value):
            bound = f"must hold no user name or password: {why}"
            reader.fault(key, value, bound, "name a mirror that needs none")
    return given


def require_digests(
    reader: Reader,
    named: Mapping[str, str],
    arguments: Mapping[str, str],
    programs: Collection[str],
) -> bool:
    """Return whether every image has to have a digest; note those that have none.

    Args:
        reader: of the settings.
        named: references of images that are not built here, by program.
        arguments: build arguments of the others.
        programs: the ones that run.
    """
    required = reader.boolean("requireDigests")
    if required:
        # Values other than texts are faults already.
        named, arguments = (
            {name: text for name, text in each.items() if isinstance(text, str)}
            for each in (named, arguments)
        )
        for key, reference in sources(named, arguments, programs).items():
            action = f"run `make digests` and commit docker/digests.json, or write {reference}"
            check_digest(reader, key, reference, action)
    return required


def dataset(reader: Reader) -> Dataset | None:
    """Return the source of the data volume; None without one, or with faults."""
    given = reader.object("dataset", f"write its fields: {', '.join(DATASET_FIELDS)}")
    for name, value in given.items():
        _check_dataset_field(reader, f"dataset.{name}", name, value)
    if given and len(given.keys() & set(DATASET_SOURCES)) != 1:
        bound = f"must have one of {', '.join(DATASET_SOURCES)}"
        reader.fault("dataset", sorted(given), bound, "name one place to fill the volume from")
    elif "url" in given and "sha256" not in given:
        # Data from a network is unpacked and read by every job.
        bound = "must be set with dataset.url: nothing else tells that it is the archive you mean"
        action = "download it once, and write what sha256sum prints for it"
        reader.fault("dataset.sha256", "", bound, action)
    elif "generate" in given and "sha256" in given:
        bound = "is of an archive, and generate is set"
        reader.fault("dataset.sha256", given["sha256"], bound, "remove dataset.sha256")
    if reader.faults or not given:
        return None
    return Dataset(
        generate="generate" in given,
        url=given.get("url", ""),
        archive=Path(given["archive"]) if "archive" in given else None,
        sha256=given.get("sha256", "").lower(),
        volume=given.get("volume", DATASET_VOLUME),
    )


def _check_dataset_field(reader: Reader, key: str, name: str, value: Any) -> None:
    if name not in DATASET_FIELDS:
        reader.unknown(key, value, name, DATASET_FIELDS)
    elif name == "generate":
        if value is not True:
            reader.fault(key, value, "must be true", "set it to true, or leave generate out")
    elif not isinstance(value, str) or not value.isprintable():
        reader.fault(key, value, "must be a text of one line", f"write {name} in quotes")
    elif name == "url":
        _check_url(reader, key, value)
    elif name == "archive":
        reader.check_path(key, value)
    elif name == "sha256" and not SHA256.fullmatch(value.lower()):
        bound = "must be the 64 hexadecimal digits of a SHA-256 digest"
        reader.fault(key, value, bound, "take them from sha256sum, or leave sha256 out")
    elif name == "volume" and reader.raw.get("runtime") == "process":
        bound = "is a Docker volume, and runtime = 'process' has the images in dataDir"
        reader.fault(key, value, bound, f"remove {key}")
    elif name == "volume" and not VOLUME.fullmatch(value):
        bound = "must be 2 to 255 letters, digits and . _ - after a letter or digit"
        reader.fault(key, value, bound, "set it to such a name")


def _check_url(reader: Reader, key: str, value: str) -> None:
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and " " not in value
        usable = usable and parts.port != 0  # reading a port that is not a number raises
    except ValueError:
        usable = False
    if CREDENTIALS.search(value):
        bound = "must hold no user name or password: settings must not hold secrets"
        reader.fault(key, value, bound, "download it, and name the file as dataset.archive")
    elif not usable:
        bound = "must be an http or https address"
        reader.fault(key, value, bound, "write it as https://host/path; a file is dataset.archive")


def allowed_cidrs(reader: Reader) -> tuple[str, ...]:
    """Return the IPv4 networks whose machines may connect; on rented machines log in by SSH."""
    rented = renting(reader)
    given = reader.array("allowedCidrs", "write a list of networks, such as [192.0.2.0/24]")
    if len(given) > MAX_CIDRS:
        bound = f"must be at most {MAX_CIDRS} networks"
        reader.fault("allowedCidrs", len(given), bound, "join neighbours to larger networks")
    if rented and not given:
        own = local.public_address()
        mine = f"[{own}/32] is this machine's" if own else "such as [198.51.100.7/32]"
        bound = f"must be set with {rented}: the networks that may log in to its machines by SSH"
        action = (
            f"set it to the public address that you come from, {mine}, or to [{EVERYBODY}] for "
            "everybody who has a key"
        )
        reader.fault("allowedCidrs", given, bound, action)
    for index, value in enumerate(given):
        # Written out, it is intended: SSH there takes keys only, and nothing else is open.
        if not (rented and value == EVERYBODY):
            _check_cidr(reader, f"allowedCidrs[{index}]", value)
    return tuple(str(value) for value in given)


def _check_cidr(reader: Reader, key: str, value: Any) -> None:
    if isinstance(value, str) and ":" in value:
        # A container's network is IPv4: connections by IPv6 lose their sender's address on the
        # way, so no list could be checked against it.
        bound = "must be an IPv4 network: Docker hides who connects by IPv6"
        reader.fault(key, value, bound, "use the network's IPv4 addresses")
        return
    try:
        network = ipaddress.IPv4Network(value if CIDR.fullmatch(value) else "", strict=False)
    except (TypeError, ValueError):
        bound = "must be an IPv4 network as address/bits"
        reader.fault(key, value, bound, "write it such as 192.0.2.0/24, one host as 192.0.2.7/32")
        return
    if network.prefixlen < MIN_PREFIX_LENGTH:
        bound = f"must be /{MIN_PREFIX_LENGTH} or smaller: the stack is not for everybody"
        reader.fault(key, value, bound, "name the networks of its users")
    elif str(network) != value:
        reader.fault(key, value, "must be the network's first address", f"write {network}")


def publish_address(reader: Reader) -> str:
    """Return the address that other machines connect to."""
    key = "publishAddress"
    text = reader.text(key)
    cidrs = reader.raw.get("allowedCidrs", "[]").strip() not in ("", "[]")
    if text:
        try:
            address = ipaddress.IPv4Address(text)
            usable = not (
                address.is_loopback
                or address.is_unspecified
                or address.is_multicast
                or address.is_reserved
            )
        except ValueError:
            usable = False
        if not usable:
            bound = "must be an IPv4 address of this machine, not loopback and not 0.0.0.0"
            reader.fault(key, text, bound, "choose one that `ip -4 address` lists")
        elif not cidrs:
            bound = "does nothing without allowedCidrs: only this machine can connect"
            reader.fault(key, text, bound, f"list who may connect in allowedCidrs, or remove {key}")
    elif cidrs and key in reader.raw and not renting(reader):
        bound = "must be set with allowedCidrs: it is the address that others connect to"
        reader.fault(key, text, bound, f"set {key} to an address of this machine")
    return text
