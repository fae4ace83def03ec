"""What a program asks for when it registers a resource, and what of it the engine refuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pulumi.runtime.proto import resource_pb2

from engine.assets import by_hash
from engine.durations import SECOND, parse_duration
from engine.errors import EngineError, UnsupportedError
from engine.state import Entry
from engine.values import Properties, from_struct

STACK_TYPE = "pulumi:pulumi:Stack"
PROVIDER_TYPE = "pulumi:providers:"

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
    "provider": "explicit providers",
    "providers": "explicit providers",
    "pluginDownloadURL": "the option plugin_download_url",
}


@dataclass(frozen=True, kw_only=True)
class Goal:
    """One registration. Fields as Pulumi's resource options of the same names."""

    urn: str
    type: str
    version: str
    custom: bool
    inputs: Properties
    parent: str
    dependencies: list[str]
    property_dependencies: dict[str, list[str]]
    protect: bool
    retain_on_delete: bool
    deleted_with: str
    delete_before_replace: bool | None
    custom_timeouts: dict[str, float]
    ignore_changes: list[str]
    replace_on_changes: list[str]
    additional_secret_outputs: list[str]
    aliases: list[str]

    def entry(self, inputs: Properties, provider: str, created: str, modified: str) -> Entry:
        """The resource as the state records it, before it has an id and outputs."""
        fields: Entry = {
            "urn": self.urn,
            "custom": self.custom,
            "type": self.type,
            "inputs": inputs,
            "parent": self.parent,
            "protect": self.protect,
            "dependencies": self.dependencies,
            "provider": provider,
            "propertyDependencies": self.property_dependencies,
            "additionalSecretOutputs": self.additional_secret_outputs,
            "aliases": self.aliases,
            "retainOnDelete": self.retain_on_delete,
            "deletedWith": self.deleted_with,
            "created": created,
            "modified": modified,
            "customTimeouts": self.custom_timeouts,
            "ignoreChanges": self.ignore_changes,
            "replaceOnChanges": self.replace_on_changes,
        }
        return {key: value for key, value in fields.items() if value or key == "custom"}


def goal_of(
    request: resource_pb2.RegisterResourceRequest,
    *,
    project: str,
    stack: str,
    parent_aliases: list[str],
) -> Goal:
    """The goal of a request.

    Args:
        request: as the SDK sends it.
        project: the project's name.
        stack: the stack's name.
        parent_aliases: URNs that the parent had before: its children inherit them.

    Raises:
        UnsupportedError: the request needs the pulumi CLI.
    """
    present = {field.name for field, _ in request.ListFields()}
    for name, what in REFUSED.items():
        if name in present and (name != "hooks" or request.hooks.ListFields()):
            raise UnsupportedError(f"{what} (of {request.name})")
    if request.type.startswith(PROVIDER_TYPE):
        raise UnsupportedError(f"explicit providers ({request.name})")
    inputs = {key: v for key, v in from_struct(request.object).items() if v is not None}
    inherited = [
        _urn(project, stack, alias, request.type, _renamed(request, alias))
        for alias in parent_aliases
    ]
    return Goal(
        urn=_urn(project, stack, request.parent, request.type, request.name),
        type=request.type,
        version=request.version,
        custom=request.custom,
        inputs=inputs,
        parent=request.parent,
        dependencies=sorted(request.dependencies),
        property_dependencies={
            key: sorted(found.urns)
            for key, found in request.propertyDependencies.items()
            if key in inputs
        },
        protect=request.protect,
        retain_on_delete=request.retainOnDelete,
        deleted_with=request.deletedWith,
        delete_before_replace=(
            request.deleteBeforeReplace if request.deleteBeforeReplaceDefined else None
        ),
        # Of this engine's providers that of commands keeps them; the CLI keeps them for all.
        custom_timeouts={
            field.name: parse_duration(text) / SECOND
            for field, text in request.customTimeouts.ListFields()
        },
        ignore_changes=list(request.ignoreChanges),
        replace_on_changes=list(request.replaceOnChanges),
        additional_secret_outputs=sorted(request.additionalSecretOutputs),
        aliases=[*request.aliasURNs, *inherited],
    )


def _urn(project: str, stack: str, parent: str, type_: str, name: str) -> str:
    parent_type = parent.split("::")[2] if parent else ""
    # The stack itself is no part of its children's qualified type.
    qualified = type_ if parent_type in ("", STACK_TYPE) else f"{parent_type}${type_}"
    return f"urn:pulumi:{stack}::{project}::{qualified}::{name}"


def _renamed(request: resource_pb2.RegisterResourceRequest, parent_alias: str) -> str:
    """A child named after its parent is looked for under the parent's former name."""
    parent, former = (urn.rpartition("::")[2] for urn in (request.parent, parent_alias))
    if request.name.startswith(parent):
        return former + request.name.removeprefix(parent)
    return str(request.name)


def keep_ignored(inputs: Properties, olds: Properties, paths: list[str]) -> Properties:
    """The inputs with what `ignore_changes` names as it was.

    Raises:
        EngineError: a path is no plain property name.
    """
    kept = dict(inputs)
    for path in paths:
        if not path.isidentifier():
            raise EngineError(
                f"ignore_changes {path!r}: the embedded engine takes names of whole properties"
            )
        if path in olds:
            kept[path] = olds[path]
        else:
            kept.pop(path, None)
    return kept


def forced_replaces(changed: set[str], paths: list[str]) -> list[str]:
    """Changed properties that `replace_on_changes` names: `a`, `a.b` and `a[*]` all mean `a`."""
    roots = {path.replace("[", ".").partition(".")[0] for path in paths}
    return sorted(changed if "*" in roots else changed & roots)


def changed_keys(olds: dict[str, Any], news: dict[str, Any]) -> set[str]:
    """Top-level properties that differ."""
    return {
        key for key in olds.keys() | news.keys() if by_hash(olds.get(key)) != by_hash(news.get(key))
    }
