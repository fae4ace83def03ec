"""Runs the program of a stack without an engine, and collects its Kubernetes objects.

It is the program that `up` runs, so nothing can differ. No cluster and no state is asked, and no
secret is read: each is a variable such as ${RAY_TOKEN}, also inside longer texts.
"""

import asyncio
import json
import re
import runpy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulumi
from pydantic import TypeAdapter, ValidationError

from cluster import services
from infra.places.kubernetes import preflight
from infra.settings import kubernetes as kubernetes_settings
from trainyard.access import settings_file

ROOT = Path(__file__).parents[3]
PROGRAM = ROOT / "infra" / "__main__.py"
DYNAMIC = "pulumi-python:dynamic/"
OBJECT, SECRET = "kubernetes:Object", "cluster:Secret"
LOOKING = ("kubernetes:Ready", "kubernetes:RecreateGuard")  # they make nothing
SIGNATURE = "4dabf18193072939515e22adb298388d"  # key that marks a secret in the SDK's messages
VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
URL = "https://stand-in/"


@dataclass(frozen=True, kw_only=True)
class Declarations:
    """The declarations of a program.

    Attributes:
        objects: of Kubernetes, each with its secrets as `stringData` full of variables.
        drawn: bytes of each random secret, by its variable.
        given: variables of the other secrets, which come from settings or from other secrets.
        others: what `up` makes in services once they run, such as a bucket.
    """

    objects: Sequence[Mapping[str, Any]]
    drawn: Mapping[str, int]
    given: Sequence[str]
    others: Sequence[str]


@dataclass
class _Recorder(pulumi.runtime.Mocks):
    """Answers the program as the engine would: each resource gets its declared properties."""

    objects: list[dict[str, Any]] = field(default_factory=list)
    drawn: dict[str, int] = field(default_factory=dict)
    given: set[str] = field(default_factory=set)
    others: list[str] = field(default_factory=list)

    def new_resource(
        self, args: pulumi.runtime.MockResourceArgs
    ) -> tuple[str | None, dict[str, Any]]:
        kind = args.typ.removeprefix(DYNAMIC)
        inputs = _plain(args.inputs)
        if kind == SECRET:
            name = _variable(args.name)
            self.drawn[name] = inputs["bytes"]
            return args.name, {**args.inputs, "value": f"${{{name}}}"}
        if kind == OBJECT:
            self._keep(inputs)
        elif args.custom and kind not in LOOKING:
            self.others.append(f"{kind.rpartition(':')[2]} {args.name}")
        return args.name, args.inputs

    def call(self, args: pulumi.runtime.MockCallArgs) -> Any:
        """Answer nothing: the program calls no functions of providers."""
        return args.args

    def _keep(self, inputs: Mapping[str, Any]) -> None:
        manifest = inputs["manifest"]
        texts = {}
        for key, text in sorted((inputs.get("secrets") or {}).items()):
            texts[key] = text.replace(URL, "")
            if not VARIABLE.search(text):
                name = _variable(f"{manifest['metadata']['name']}-{key}")
                self.given.add(name)
                texts[key] = f"${{{name}}}"
        if texts:
            manifest = {**manifest, "stringData": texts}
        self.objects.append(manifest)


def run(stack: str, folder: Path = ROOT) -> Declarations:
    """Run the program of a stack.

    Raises:
        pulumi.RunError: its settings cannot be read or have faults, or it is in no cluster.
    """
    project, config, secret = read_settings(stack, folder)
    if config.get(f"{project}:runtime") != kubernetes_settings.KEY:
        raise pulumi.RunError(
            f"stack {stack!r} has runtime {config.get(f'{project}:runtime')!r}: only one with "
            f"runtime {kubernetes_settings.KEY!r} has manifests (docs/kubernetes.md)"
        )
    if config.get(f"{project}:reservation", "{}") != "{}":
        raise pulumi.RunError(
            f"stack {stack!r} has a reservation: at its end a timer deletes objects, and a "
            "pipeline makes them again. Remove the setting for these files, and let the pipeline "
            "end the stack"
        )
    recorder = _Recorder()
    loop = asyncio.new_event_loop()  # the SDK takes the current one, and there may be none
    asyncio.set_event_loop(loop)
    try:
        pulumi.runtime.set_mocks(recorder, project=project, stack=stack, preview=False)
        pulumi.runtime.set_all_config(config, secret)
        with preflight.unasked():
            pulumi.runtime.test(_program)()  # type: ignore[no-untyped-call]
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    settings = {name for text in config.values() for name in VARIABLE.findall(text)}
    used = {name for each in recorder.objects for name in VARIABLE.findall(json.dumps(each))}
    return Declarations(
        objects=recorder.objects,
        drawn={name: recorder.drawn[name] for name in sorted(recorder.drawn.keys() & used)},
        given=sorted(recorder.given | settings & used),
        others=sorted(recorder.others),
    )


def _program() -> None:
    runpy.run_path(str(PROGRAM), run_name="__main__")


def read_settings(stack: str, folder: Path) -> tuple[str, dict[str, str], list[str]]:
    """Return the project's name, a stack's settings as the program gets them, and the secret ones.

    A secret is a variable, so no passphrase is needed.

    Raises:
        pulumi.RunError: they are missing, or not YAML.
    """
    project = _yaml(folder / "Pulumi.yaml")
    settings = _yaml(folder / f"Pulumi.{stack}.yaml").get("config") or {}
    name = str(project["name"])
    found: dict[str, str] = {}
    secret: list[str] = []
    values = {key: declared.get("default") for key, declared in project["config"].items()}
    # Settings that no schema has are passed on too: the program refuses them.
    values |= {key.removeprefix(f"{name}:"): value for key, value in settings.items()}
    for key, given in values.items():
        value = _without_secrets(given, key)
        if (kind := _secret_settings().get(key)) and value:
            value = _stand_in(key, kind)
            secret.append(f"{name}:{key}")
        if value is not None:
            found[f"{name}:{key}"] = value if isinstance(value, str) else json.dumps(value)
    return name, found, secret


def _secret_settings() -> dict[str, Any]:
    """Return the types of services' settings that may be secrets, also where not encrypted."""
    return {
        key: kind
        for service in services.ALL
        for key, (kind, declared) in service.settings.items()
        if not declared.repr
    }


def _stand_in(key: str, kind: Any) -> str:
    """Return a stand-in for a secret setting that has its form, until `_Recorder` has it."""
    variable = f"${{{_variable(key)}}}"
    try:
        return str(TypeAdapter(kind).validate_python(variable))
    except ValidationError:
        return f"{URL}{variable}"


def _without_secrets(value: Any, key: str) -> Any:
    if isinstance(value, Mapping):
        if set(value) == {"secure"}:
            return f"${{{_variable(key)}}}"
        return {name: _without_secrets(each, f"{key}-{name}") for name, each in value.items()}
    if isinstance(value, list):
        return [_without_secrets(each, f"{key}-{i}") for i, each in enumerate(value)]
    return value


def _yaml(path: Path) -> dict[str, Any]:
    try:
        return dict(settings_file.read(path) or {})
    except OSError as error:
        raise pulumi.RunError(
            f"cannot read {path} ({error.strerror}): name a stack that has settings with -s"
        ) from None
    except (TypeError, ValueError) as error:
        raise pulumi.RunError(f"{path} is not a mapping in YAML: {error}") from None


def _variable(name: str) -> str:
    """Return the variable of a name: RAY_TOKEN of ray-token and of rayToken."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return re.sub(r"[^A-Za-z0-9]+", "_", words).upper().strip("_")


def _plain(value: Any) -> Any:
    """Return a value without the marks of secrets, and with whole numbers as integers."""
    if isinstance(value, Mapping):
        if SIGNATURE in value:
            return _plain(value.get("value"))
        return {key: _plain(each) for key, each in value.items() if not key.startswith("__")}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
