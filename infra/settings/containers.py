"""Settings of containers: images, their build, the data volume, allowed networks.

Deliberately absent: any look at the machine. Archives, addresses and images are looked for where
they are used.
"""

import ipaddress
import re
from collections.abc import Collection, Iterator
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator

from cluster.model import (
    ABSOLUTE,
    CREDENTIALS,
    SECRET_NAME,
    Fault,
    Items,
    Known,
    Meaning,
    Model,
    matching,
    refuse,
    satisfying,
)
from infra.machines import local
from infra.settings.images import BUILT, PULLED

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
CIDR = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}/\d{1,2}", re.ASCII)
EVERYBODY = "0.0.0.0/0"
MIN_PREFIX_LENGTH = 8  # bits: no organisation's own network is larger
TOO_LARGE = f"must be /{MIN_PREFIX_LENGTH} or smaller: the stack is not for everybody"
MAX_CIDRS = 64
READABLE = "anyone who has the image can read its build arguments"


def _image(reference: Any) -> Any:
    found = IMAGE.fullmatch(reference) if isinstance(reference, str) else None
    if found is None or len(found["name"]) > IMAGE_NAME_LIMIT:
        raise refuse(
            "must be an image reference, [host[:port]/]name:tag or name@sha256:digest",
            "write it as docker pull takes it",
        )
    if found["tag"] is None and found["digest"] is None:
        # Docker would take the tag latest, which is another image tomorrow.
        raise refuse("must have a tag or a digest", f"name the version, such as {reference}:1.0")
    return reference


def _argument(name: str) -> str:
    if SECRET_NAME.search(name):
        raise refuse(f"must not be a secret: {READABLE}", "remove it")
    if not BUILD_ARGUMENT.fullmatch(name):
        raise refuse(
            "must be named in capitals, digits and _ after a capital",
            "use the name of an ARG in docker/*/Dockerfile",
        )
    return name


def _one_line(text: Any, why: str, action: str) -> str:
    if not isinstance(text, str) or not text.isprintable():
        raise refuse("must be a text of one line", "write it in quotes")
    if CREDENTIALS.search(text):
        raise refuse(f"must hold no user name or password: {why}", action)
    return text


_argument_value = partial(_one_line, why=READABLE, action="name a mirror that needs none")


def _url(given: Any) -> str:
    action = "download it, and name the file as dataset.archive"
    text = _one_line(given, "settings must not hold secrets", action)
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and " " not in text
        usable = usable and parts.port != 0  # reading a port that is not a number raises
    except ValueError:
        usable = False
    if not usable:
        raise refuse(
            "must be an http or https address",
            "write it as https://host/path; a file is dataset.archive",
        )
    return text


def _cidr(text: Any) -> Any:
    if text == EVERYBODY:
        return text  # of rented machines only; cidr_faults
    if isinstance(text, str) and ":" in text:
        # A container's network is IPv4: connections by IPv6 lose their sender's address on the
        # way, so no list could be checked against it.
        raise refuse(
            "must be an IPv4 network: Docker hides who connects by IPv6",
            "use the network's IPv4 addresses",
        )
    try:
        network = ipaddress.IPv4Network(text if CIDR.fullmatch(text) else "", strict=False)
    except (TypeError, ValueError):
        raise refuse(
            "must be an IPv4 network as address/bits",
            "write it such as 192.0.2.0/24, one host as 192.0.2.7/32",
        ) from None
    if network.prefixlen < MIN_PREFIX_LENGTH:
        raise refuse(TOO_LARGE, "name the networks of its users")
    if str(network) != text:
        raise refuse("must be the network's first address", f"write {network}")
    return text


def _is_reachable(text: str) -> bool:
    address = ipaddress.IPv4Address(text)
    reserved = address.is_unspecified or address.is_multicast or address.is_reserved
    return not (address.is_loopback or reserved)


Image = Annotated[str, BeforeValidator(_image)]
PROGRAMS = (*BUILT, *PULLED)
Images = Annotated[
    dict[Annotated[str, Known(PROGRAMS)], Image],
    Meaning("must be an object", f"write image references by program: {', '.join(PROGRAMS)}"),
]
BuildArgs = Annotated[
    dict[
        Annotated[str, AfterValidator(_argument)], Annotated[str, BeforeValidator(_argument_value)]
    ],
    Meaning("must be an object", "write build arguments by name, such as {BASE_IMAGE: …}"),
]
Cidrs = Annotated[
    Items[Annotated[str, BeforeValidator(_cidr)]],
    Meaning("must be an array", "write a list of networks, such as [192.0.2.0/24]"),
]
PublishAddress = Annotated[
    str,
    satisfying(
        lambda text: not text or _is_reachable(text),
        "must be an IPv4 address of this machine, not loopback and not 0.0.0.0",
        "choose one that `ip -4 address` lists",
    ),
]


class Dataset(Model):
    """The source of the data volume.

    Attributes:
        public: whether it is Food-11 itself, by default from where the course has it.
        generate: whether a stand-in is drawn, in place of an archive.
        url: http or https address of the archive, "" for none or a local one.
        archive: path of the archive on this machine, "" for none or a remote one.
        sha256: digest of the archive in lowercase, "" for a file of this machine that is taken as
            it is.
        volume: name of one of `volumes`, else of the Docker volume.
    """

    public: Annotated[
        bool,
        satisfying(bool, "must be true", "set it to true, or leave public out"),
    ] = False
    generate: Annotated[
        bool,
        satisfying(bool, "must be true", "set it to true, or leave generate out"),
    ] = False
    url: Annotated[str, BeforeValidator(_url)] = ""
    archive: Annotated[str, ABSOLUTE] = ""
    sha256: Annotated[
        str,
        AfterValidator(str.lower),
        matching(
            r"[0-9A-Fa-f]{64}",
            "must be the 64 hexadecimal digits of a SHA-256 digest",
            "take them from sha256sum, or leave sha256 out",
        ),
    ] = ""
    volume: Annotated[
        str,
        matching(
            r"[A-Za-z0-9][A-Za-z0-9_.-]{1,254}",
            "must be 2 to 255 letters, digits and . _ - after a letter or digit",
            "set it to such a name",
        ),
    ] = "food11"

    def faults(self) -> Iterator[Fault]:
        """Yield fields that are not one whole source."""
        given = self.model_fields_set
        sources = given & {"generate", "url", "archive"}
        if len(sources) > 1 or not (sources or self.public) or (self.public and self.generate):
            bound = (
                "must have one of public, generate, url, archive; public may have url or archive"
            )
            yield Fault("", bound, "name one place to fill the volume from", sorted(given))
        elif self.url and not self.sha256 and not self.public:
            # Data from a network is unpacked and read by every job.
            bound = "must be set with dataset.url: nothing else tells that it is the archive you "
            action = (
                "set dataset.public if it is a copy of Food-11; or download it once, and write its "
                "sum, as sha256sum prints it"
            )
            yield Fault("sha256", f"{bound}mean", action, "")
        elif self.generate and self.sha256:
            bound = "is of an archive, and generate is set"
            yield Fault("sha256", bound, "remove dataset.sha256")


def cidr_faults(cidrs: Collection[str], address: str, rented: str) -> Iterator[Fault]:
    """Yield faults of the networks that may connect; on rented machines log in by SSH.

    `address` is what other machines connect to, and `rented` the setting that asks for rented
    machines; each is "" for none.
    """
    key, own_key = "allowedCidrs", "publishAddress"
    if len(cidrs) > MAX_CIDRS:
        bound = f"must be at most {MAX_CIDRS} networks"
        yield Fault(key, bound, "join neighbours to larger networks", len(cidrs))
    if rented and not cidrs:
        own = local.public_address()
        mine = f"[{own}/32] is this machine's" if own else "such as [198.51.100.7/32]"
        bound = f"must be set with {rented}: the networks that may log in to its machines by SSH"
        action = (
            f"set it to the public address that you come from, {mine}, or to [{EVERYBODY}] for "
            "everybody who has a key"
        )
        yield Fault(key, bound, action)
    # Written out, everybody is intended there: SSH takes keys only, and nothing else is open.
    for index, cidr in enumerate(() if rented else cidrs):
        if cidr == EVERYBODY:
            yield Fault(f"{key}[{index}]", TOO_LARGE, "name the networks of its users")
    if address and not cidrs:
        bound = "does nothing without allowedCidrs: only this machine can connect"
        yield Fault(own_key, bound, f"list who may connect in {key}, or remove {own_key}")
    elif cidrs and not address and not rented:
        bound = "must be set with allowedCidrs: it is the address that others connect to"
        yield Fault(own_key, bound, f"set {own_key} to an address of this machine")
