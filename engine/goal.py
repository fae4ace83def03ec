"""A program's registration of a resource, and the options that the engine refuses."""

from dataclasses import dataclass

from pulumi.runtime.proto import resource_pb2

from engine.assets import by_hash
from engine.durations import SECOND, parse_duration
from engine.errors import UnsupportedError
from engine.state import PROVIDER_TYPE, STACK_TYPE, Entry, now
from engine.structs import from_struct
from engine.values import Properties

DOCKER_PROVIDER = f"{PROVIDER_TYPE}docker"

PROTECTED = "it is protected in the state; to end that: pulumi state unprotect"
# Recorded by the CLI, not set by the program: for example, when a person protects a resource.
KEPT = ("created", "protect", "aliases", "sourcePosition", "stackTrace")
# Request fields that change what happens to a resource and that the engine does not act on.
REFUSED = {
    "importId": "the option import_",
    "remote": "remote components",
    "replace_with": "the option replace_with",
    "replacement_trigger": "the option replacement_trigger",
    "transforms": "transforms",
    "packageRef": "parameterized packages",
    "hideDiffs": "the option hide_diffs",
    "envVarMappings": "the option env_var_mappings",
    "state_migrations": "state migrations",
    "hooks": "the option hooks",
    "providers": "explicit providers of components",
    "pluginDownloadURL": "the option plugin_download_url",
    "aliases": "the option aliases",
    "aliasURNs": "the option aliases",
    "protect": "the option protect",
}


@dataclass(frozen=True, kw_only=True)
class Goal:
    """One registration.

    Attributes:
        version: of the package's plugin, as its SDK asks for it.
        provider: `urn::id` of the provider that the program declared, "" for the default one.
        delete_before_replace: as Pulumi's option, None where it is not given.
        fields: recorded in the state, except inputs and provider.
    """

    urn: str
    type: str
    version: str
    provider: str
    custom: bool
    inputs: Properties
    delete_before_replace: bool | None
    fields: Entry

    def entry(self, inputs: Properties, provider: str, old: Entry | None = None) -> Entry:
        """The resource as the state records it, before it has an id and outputs.

        What the program does not set is kept from the entry so far, `old`.
        """
        kept = {key: old[key] for key in KEPT if key in old} if old is not None else {}
        time = now()
        fields = {"inputs": inputs, "provider": provider, "created": time, "modified": time}
        present = {key: value for key, value in (self.fields | fields).items() if value}
        return present | {"urn": self.urn, "type": self.type, "custom": self.custom} | kept


def goal_of(request: resource_pb2.RegisterResourceRequest, *, project: str, stack: str) -> Goal:
    """The goal of a request.

    Raises:
        UnsupportedError: the request needs the pulumi CLI.
    """
    # An option may be given as False, which is its default.
    present = {field.name for field, value in request.ListFields() if value is not False}
    for name, what in REFUSED.items():
        if name in present and (name != "hooks" or request.hooks.ListFields()):
            raise UnsupportedError(f"{what} (of {request.name})")
    for path in (*request.ignoreChanges, *map(whole, request.replaceOnChanges)):
        if not path.isidentifier():
            raise UnsupportedError(f"{path!r}, which is not a whole property (of {request.name})")
    if request.type.startswith(PROVIDER_TYPE) and request.type != DOCKER_PROVIDER:
        raise UnsupportedError(f"explicit providers of this package ({request.name})")
    inputs = {key: v for key, v in from_struct(request.object).items() if v is not None}
    fields: Entry = {
        "parent": request.parent,
        "dependencies": sorted(request.dependencies),
        "propertyDependencies": {
            key: sorted(found.urns)
            for key, found in request.propertyDependencies.items()
            if key in inputs
        },
        "additionalSecretOutputs": sorted(request.additionalSecretOutputs),
        "retainOnDelete": request.retainOnDelete,
        "deletedWith": request.deletedWith,
        # In this engine only the provider of commands keeps them; the CLI keeps them for all.
        "customTimeouts": {
            field.name: parse_duration(text) / SECOND
            for field, text in request.customTimeouts.ListFields()
        },
        "ignoreChanges": list(request.ignoreChanges),
        "replaceOnChanges": list(request.replaceOnChanges),
    }
    first = request.deleteBeforeReplace if request.deleteBeforeReplaceDefined else None
    return Goal(
        urn=urn_of(project, stack, request.parent, request.type, request.name),
        type=request.type,
        version=request.version,
        provider=request.provider,
        custom=request.custom,
        inputs=inputs,
        delete_before_replace=first,
        fields=fields,
    )


def urn_of(project: str, stack: str, parent: str, type_: str, name: str) -> str:
    """The URN of a resource of a type and name below a parent."""
    parent_type = parent.split("::")[2] if parent else ""
    # The stack itself is not part of its children's qualified type.
    qualified = type_ if parent_type in ("", STACK_TYPE) else f"{parent_type}${type_}"
    return f"urn:pulumi:{stack}::{project}::{qualified}::{name}"


def whole(path: str) -> str:
    """The property of a path of `replace_on_changes`: `a` of `a[*]`, as SDKs write it."""
    return path.removesuffix("[*]")


def keep_ignored(inputs: Properties, olds: Properties, names: list[str]) -> Properties:
    """The inputs, with the old values of the properties that `ignore_changes` names."""
    rest = {key: value for key, value in inputs.items() if key not in names}
    return rest | {key: olds[key] for key in names if key in olds}


def changed_keys(olds: Properties, news: Properties) -> set[str]:
    """Top-level properties that differ."""
    return {
        key for key in olds.keys() | news.keys() if by_hash(olds.get(key)) != by_hash(news.get(key))
    }
