"""The rules of a stack, which both engines apply to each resource before it is made.

A rule is a function of a resource's role and inputs that yields a sentence for each violation. The
role is the last word of its type, whatever the place of the stack (docs/ARCHITECTURE.md). A rule
gets the inputs as they cross Pulumi's wire: with marks around secrets, and a sentinel for a value
that a preview does not know, which violates nothing. It uses the standard library only: the pulumi
CLI runs it in an environment of its own.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

ADVISORY = "advisory"
MANDATORY = "mandatory"

SIGNATURE = "4dabf18193072939515e22adb298388d"  # Pulumi's key of marked values
SECRET = "1b47061264138c4ac30d75fd1eb44270"  # its value for a secret  # noqa: S105
# Pulumi's sentinels for texts, numbers, booleans, lists and objects that a preview does not know.
UNKNOWN = {
    "04da6b54-80e4-46f7-96ec-b56ff0331ba9",
    "3eeb2bf0-c639-47a8-9e75-3b44932eb421",
    "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",
    "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",
    "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",
}

CONTAINER, IMAGE, PROGRAM, OBJECT = "Container", "RemoteImage", "Program", "Object"
LABELLED = (CONTAINER, "Network", "Volume")
KEEPING = ("Data", "FileSystem", "Node")
CHOICE, INSTANCE, FIREWALL = "Choice", "Instance", "FirewallRuleset"

CLAIM, SERVICE, RAY_CLUSTER = "PersistentVolumeClaim", "Service", "RayCluster"  # kinds of objects
INSIDE = (None, "ClusterIP")  # types of Services that only the cluster reaches

SSH_PORT = 22
EVERYWHERE = "0.0.0.0"  # noqa: S104 - what is looked for
RAY_TOKEN = ("RAY_AUTH_MODE", "token")
OWNER = "trainyard:owner"
TAGS = ("trainyard:project", "trainyard:stack", "trainyard:backend")
LABELS = ("trainyard.project", "trainyard.stack")
OBJECT_LABELS = ("trainyard/project", "trainyard/stack")
CREDENTIAL = re.compile(
    r"(password|passwd|passphrase|secret|token|credentials?|(private|api|secret|access)_?key"
    r"|secret_access_key)",
    re.IGNORECASE,
)

Props = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule.

    Attributes:
        level: where none is set: ADVISORY or MANDATORY.
        judge: role and inputs of a resource to a sentence for each violation. The rule has its
            name, by which its level is set, and its docstring.
    """

    level: str
    judge: Callable[[str, Props], Iterable[str]]

    @property
    def name(self) -> str:
        return self.judge.__name__.replace("_", "-")

    @property
    def description(self) -> str:
        return self.judge.__doc__ or self.name  # PYTHONOPTIMIZE=2 leaves out docstrings

    def check(self, type_: str, props: Props) -> Iterable[str]:
        """Return a sentence for each violation of a resource."""
        return self.judge(type_.rpartition(":")[2], props)


def control_ports(role: str, props: Props) -> Iterator[str]:
    """The service of a port that others reach asks for a token or password."""
    if role == OBJECT:
        yield from _open_objects(_mapping(props, "manifest"))
        return
    if role == CONTAINER:
        heard = [without_mark(port.get("ip")) or EVERYWHERE for port in _list(props, "ports")]
    elif role == PROGRAM:
        heard = [urlsplit(url).hostname or "" for url in _list(props, "health")]
        heard += [EVERYWHERE for word in _command(props) if EVERYWHERE in word]
    else:
        return
    beyond = ", ".join(sorted(filter(_is_beyond_loopback, set(heard))))
    if not beyond:
        return
    if _is_ray(props) and _variables(props).get(RAY_TOKEN[0]) != RAY_TOKEN[1]:
        yield f"Ray listens on {beyond} without a token: set {'='.join(RAY_TOKEN)}"
    elif not _has_credential(props):
        yield (
            f"listens on {beyond} and gets no secret, so it cannot ask for a token: keep it "
            "on loopback, or behind the gateway"
        )


def images_by_digest(role: str, props: Props) -> Iterator[str]:
    """Images, or the bases that they are built from, are named by digest."""
    if role == OBJECT:
        for name in sorted({*_images(_mapping(props, "manifest"))}):
            yield f"takes {name} without a digest: write its digest into images"
        return
    key = {IMAGE: "name", CONTAINER: "image"}.get(role)
    if key is None or key not in props:
        return
    if build := _mapping(props, "build"):
        arguments = _mapping(build, "buildArgs").items()
        names = [str(without_mark(base)) for name, base in arguments if name.endswith("_IMAGE")]
    else:
        names = [str(without_mark(props[key]))]
    # A container may name an image by its ID, which is a digest.
    bare = [name for name in names if "sha256:" not in name and not is_unknown(name)]
    if bare or not names:
        what = f"is built from {bare[0] if bare else 'an image'}" if build else f"takes {bare[0]}"
        yield f"{what} without a digest: run make digests"


def credentials_as_secrets(_role: str, props: Props) -> Iterator[str]:
    """Passwords, tokens and keys are marked as secrets, so that states hold them encrypted."""
    for path in _bare_credentials(props, ""):
        yield f"{path} is in the clear: make it a secret (pulumi.Output.secret, or config --secret)"


def end_of_rented(role: str, props: Props) -> Iterator[str]:
    """Rented machines end themselves, and have a bound for their price."""
    if role == INSTANCE and not without_mark(props.get("ttlHours")):
        yield "has no end: set ttlHours"
    # The choice of a runtime has no price.
    if role == CHOICE and "maxHourlyCost" in props and not without_mark(props["maxHourlyCost"]):
        yield "has no bound of $ an hour: set maxHourlyCost"


def results_protected(role: str, props: Props) -> Iterator[str]:
    """Folders, volumes and file systems with results outlive the stack."""
    is_claim = role == OBJECT and without_mark(_mapping(props, "manifest").get("kind")) == CLAIM
    if (role in KEEPING or is_claim) and without_mark(props.get("keep")) is False:
        yield "results go with the stack: set keepData to true"


def ssh_not_open(role: str, props: Props) -> Iterator[str]:
    """SSH is not open to everybody."""
    for rule in _list(props, "rules") if role == FIREWALL else ():
        network = str(without_mark(rule["sourceNetwork"]))
        if network.endswith("/0") and rule["firstPort"] <= SSH_PORT <= rule["lastPort"]:
            yield f"SSH is open to {network}: name your networks in allowedCidrs"


def tags_present(role: str, props: Props) -> Iterator[str]:
    """Things are marked with their project and stack."""
    if role == OBJECT:
        known = _mapping(_mapping(_mapping(props, "manifest"), "metadata"), "labels")
        if missing := [name for name in OBJECT_LABELS if name not in known]:
            yield f"has no {', '.join(missing)}"
        return
    where, names = ("tags", TAGS) if role == INSTANCE else ("labels", LABELS)
    if role not in (INSTANCE, *LABELLED) or is_unknown(props.get(where)):
        return
    labels = {without_mark(label.get("label")) for label in _list(props, "labels")}
    there = labels | _mapping(props, "tags").keys()
    if missing := [name for name in names if name not in there]:
        yield f"has no {', '.join(missing)}"


def owner_known(role: str, props: Props) -> Iterator[str]:
    """Each instance has an owner."""
    if role != INSTANCE or is_unknown(props.get("tags")):
        return
    if not without_mark(_mapping(props, "tags").get(OWNER)):
        yield f"has no owner (tag {OWNER}): set owner"


RULES = (
    Rule(level=MANDATORY, judge=control_ports),
    Rule(level=ADVISORY, judge=images_by_digest),
    Rule(level=MANDATORY, judge=credentials_as_secrets),
    Rule(level=MANDATORY, judge=end_of_rented),
    Rule(level=ADVISORY, judge=results_protected),
    Rule(level=MANDATORY, judge=ssh_not_open),
    Rule(level=ADVISORY, judge=tags_present),
    Rule(level=MANDATORY, judge=owner_known),
)


def is_secret(value: Any) -> bool:
    """Whether a value carries the mark of a secret."""
    return isinstance(value, Mapping) and value.get(SIGNATURE) == SECRET


def is_unknown(value: Any) -> bool:
    """Whether a value is one that a preview does not know."""
    inside = without_mark(value)
    return isinstance(inside, str) and inside in UNKNOWN


def without_mark(value: Any) -> Any:
    """Return a value without its mark of a secret."""
    return value["value"] if is_secret(value) else value


def _list(props: Props, name: str) -> list[Any]:
    """The known items of a list."""
    value = without_mark(props.get(name))
    items = map(without_mark, value) if isinstance(value, list) else ()
    return [item for item in items if not is_unknown(item)]


def _mapping(props: Props, name: str) -> Props:
    value = without_mark(props.get(name))
    return value if isinstance(value, Mapping) else {}


def _holds_secret(value: Any) -> bool:
    if is_secret(value):
        return True
    items = value.values() if isinstance(value, Mapping) else value
    return isinstance(value, (Mapping, list)) and any(map(_holds_secret, items))


def _has_credential(props: Props) -> bool:
    """Whether a container or program is given a secret by file or variable."""
    # A program without secret files has an empty secret.
    secrets = without_mark(props.get("secrets"))
    return bool(secrets) or _holds_secret([props.get("uploads"), props.get("envs")])


def _open_objects(manifest: Props) -> Iterator[str]:
    """Yield violations of an object that can be reached without a token."""
    spec, kind = _mapping(manifest, "spec"), without_mark(manifest.get("kind"))
    opened = without_mark(spec.get("type"))
    if kind == SERVICE and opened not in INSIDE and not is_unknown(opened):
        yield f"is a Service of type {opened}, which others reach: use train tunnel instead"
    if kind == RAY_CLUSTER:
        mode = _mapping(spec, "authOptions").get("mode")
        if without_mark(mode) != RAY_TOKEN[1] and not is_unknown(mode):
            yield "Ray's pods ask for no token: set authOptions.mode to token"


def _images(value: Any) -> Iterator[str]:
    """Images of containers in an object that have no digest."""
    inside = without_mark(value)
    if isinstance(inside, list):
        for item in inside:
            yield from _images(item)
    elif isinstance(inside, Mapping):
        for name, item in inside.items():
            image = without_mark(item)
            if name == "image" and isinstance(image, str):
                if "@sha256:" not in image and not is_unknown(image):
                    yield image
            else:
                yield from _images(item)


def _variables(props: Props) -> dict[str, Any]:
    pairs = (str(entry).partition("=") for entry in _list(props, "envs"))
    return {**_mapping(props, "environment"), **{name: value for name, _, value in pairs}}


def _command(props: Props) -> list[str]:
    return [str(word) for word in _list(props, "command")]


def _is_ray(props: Props) -> bool:
    # Nodes of a stack are started by a script of that name.
    return any(word.rpartition("/")[2] in ("ray", "ray_command.py") for word in _command(props)[:2])


def _is_beyond_loopback(address: str) -> bool:
    if not address or address == "localhost" or is_unknown(address):
        return False
    try:
        return not ipaddress.ip_address(address).is_loopback
    except ValueError:  # a name
        return True


def _bare_credentials(value: Any, path: str) -> Iterator[str]:
    """Paths of credentials that no mark of a secret encloses."""
    if is_secret(value):
        return
    if isinstance(value, Mapping):
        for name, item in value.items():
            here = f"{path}.{name}" if path else str(name)
            if isinstance(item, str) and _is_credential(str(name), item):
                yield here
            yield from _bare_credentials(item, here)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            # A container's variables are texts `NAME=value`.
            name, equals, text = item.partition("=") if isinstance(item, str) else ("", "", "")
            if equals and _is_credential(name, text):
                yield f"{path}[{index}] {name}"
            yield from _bare_credentials(item, f"{path}[{index}]")


def _is_credential(name: str, value: str) -> bool:
    ending = re.search(rf"{CREDENTIAL.pattern}$", name, re.IGNORECASE)
    return bool(ending) and value != "" and value not in UNKNOWN
