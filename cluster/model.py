"""The base of all models of settings, which translates pydantic's errors to faults.

A fault is a line that names the key, its value, the bound and the next action. Settings come from
Pulumi as text: `parsed` makes of it what JSON has, and models are strict from there on.
"""

import difflib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Self, TypeVar, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ModelWrapValidatorHandler,
    Strict,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

WHOLE = re.compile(r"-?\d{1,18}", re.ASCII)
SECRET_NAME = re.compile(r"TOKEN|PASSW|SECRET|KEY|CREDENTIAL", re.IGNORECASE)
SECRET_PAIR = re.compile(rf"(?:{SECRET_NAME.pattern})\w*[\"']?\s*[=:]", re.IGNORECASE)
NOT_SHOWN = "(not shown)"
CREDENTIALS = re.compile(r"://[^/@\s]+@")  # in an address, before the host
PLAIN = re.compile(r"[\w.:-]+", re.ASCII)
# The value of a fault is that of the settings, or the names of its fields: these may be secrets by
# mistake, and their names tell enough.
GIVEN, NAMES = object(), object()
# Bound and action of pydantic's own errors, where no marker says more.
MEANING = {
    "bool_type": ("must be true or false", "set {key} to one of them"),
    "string_type": ("must be a text", "write it in quotes"),
    "string_unicode": ("must be a text of Unicode", "write it without half a character"),
}
T = TypeVar("T")
# An array of JSON.
Items = Annotated[tuple[T, ...], Strict(strict=False)]


@dataclass(frozen=True)
class Fault:
    """A fault of settings.

    Attributes:
        key: name of the setting; `Model.faults` gives it relative to the model, "" for all of it.
        bound: what the value must be, or why it cannot be.
        action: what to do next; {key} stands for the key.
        value: shown in place of the value that was given.
    """

    key: str
    bound: str
    action: str
    value: Any = GIVEN

    def line(self, raw: Mapping[str, Any]) -> str:
        """Return the line of a message; a value that looks like a secret is not shown."""
        value = _at(raw, _steps(self.key)) if self.value in (GIVEN, NAMES) else self.value
        if self.value is NAMES and isinstance(value, dict):
            value = list(value)
        shown = value if isinstance(value, str) else json.dumps(value)
        if SECRET_NAME.search(self.key) or SECRET_PAIR.search(shown) or CREDENTIALS.search(shown):
            shown = NOT_SHOWN
        action = self.action.replace("{key}", self.key)
        return f"{self.key} = {shown!r:.300}: {self.bound}; {action}"


class FaultsError(ValueError):
    """Its arguments are the faults that a check has found; pydantic keeps it in its own error."""


def refuse(bound: str, action: str) -> FaultsError:
    """Return the error of a value itself, for a validator to raise."""
    return FaultsError(Fault("", bound, action))


@dataclass(frozen=True)
class Says:
    """Marks a type: all its errors are this fault.

    Attributes:
        action: see Fault; {<another field>} stands for its value.
        check: a constraint of pydantic; None for the type alone.
        kind: the type that is read, if it is not the annotated one.
        secret: whether a value is never shown.
    """

    bound: str
    action: str
    check: Any = None
    kind: Any = None
    secret: bool = False

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.custom_error_schema(
            handler(Annotated[self.kind or source, self.check]),
            "fault",
            custom_error_message="",
            custom_error_context={"says": self},
        )


@dataclass(frozen=True)
class Known:
    """Marks the only keys that a mapping may have."""

    names: Collection[str]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.custom_error_schema(
            handler(Literal[tuple(self.names)]),
            "unknown",
            custom_error_message="",
            custom_error_context={"names": tuple(self.names)},
        )


@dataclass(frozen=True)
class Meaning:
    """Marks an object or array: what it must be, and what to do if a value is something else."""

    bound: str
    action: str


@dataclass(frozen=True)
class Only:
    """Marks a setting that means something to some stacks only.

    Attributes:
        runtimes: names of their runtimes, () for all.
        machines: whether only stacks on other machines have it.
    """

    runtimes: tuple[str, ...] = ()
    machines: bool = False


def whole(low: int, high: int, unit: str = "", *, or_zero: bool = False) -> Says:
    """Return the marker of a whole number; also for one that is None unless it is set."""
    bound = f"must be a whole number {unit and f'of {unit} '}from {low} to {high}"
    check = Field(ge=0 if or_zero else low, le=high)
    return Says(bound, "set {key} within it", check, int)


def number(low: float, high: float) -> Says:
    """Return the marker of a number, which stays an int if it is one; see whole."""
    bound = f"must be a number from {low} to {high if isinstance(high, int) else f'{high:g}'}"
    return Says(bound, "set {key} within it", Field(ge=low, le=high), int | float)


def one_of(words: Iterable[str]) -> Says:
    """Return the marker of a word."""
    bound = f"must be one of {', '.join(words)}"
    return Says(bound, "set {key} to one of them", kind=Literal[tuple(words)])


def matching(pattern: str, bound: str, action: str, *, secret: bool = False) -> Says:
    """Return the marker of a text that must match a pattern as a whole."""
    check = Field(pattern=re.compile(rf"\A(?:{pattern})\Z"))
    return Says(bound, action, check, secret=secret)


def satisfying(holds: Callable[[Any], object], bound: str, action: str) -> Says:
    """Return the marker of a value for which a function returns something true."""

    def check(value: Any) -> Any:
        if not holds(value):
            raise ValueError
        return value

    return Says(bound, action, AfterValidator(check))


def is_absolute(path: Path) -> bool:
    """Return whether a path is absolute, without `..` and characters that do not print."""
    return path.is_absolute() and ".." not in path.parts and str(path).isprintable()


# Of a path; a setting may be "" for none.
ABSOLUTE = satisfying(
    lambda text: not text or is_absolute(Path(text)),
    "must be an absolute path without '..'",
    "write the path from / on",
)


class Model(BaseModel):
    """Settings, or an object in them; its fields are named in camelCase there."""

    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, strict=True, validate_by_name=True
    )

    def faults(self) -> Iterator[Fault]:
        """Yield faults of fields that are right each for itself, and not together."""
        yield from ()

    @model_validator(mode="wrap")
    @classmethod
    def _check(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(given, dict | cls):
            raise refuse("must be an object", f"write its fields: {', '.join(cls.declared())}")
        try:
            made = handler(given)
        except ValidationError as error:
            raise FaultsError(*cls._translated(error, given)) from None
        if found := tuple(made.faults()):
            raise FaultsError(*found)
        return made

    @classmethod
    def _translated(cls, error: ValidationError, given: Any) -> Iterator[Fault]:
        """Yield the faults that pydantic has found in the fields, each with its key in them."""
        declared = cls.declared()
        for each in error.errors(include_url=False):
            place = tuple(step for step in each["loc"] if step != "[key]")
            context, key = each.get("ctx", {}), _key(place)
            match each["type"]:
                case "default_factory_not_called":
                    continue  # the default follows from a value that is a fault
                case "value_error":
                    for fault in context["error"].args:
                        yield replace(fault, key=_join(key, fault.key))
                    continue
                case "unknown" | "extra_forbidden":
                    names = context.get("names", declared)
                    yield unknown(key, str(place[-1]), names, cls._in_objects())
                    continue
            marks = declared[str(place[0])].metadata if len(place) == 1 else ()
            known = [m for m in (context.get("says"), *marks) if isinstance(m, Says | Meaning)]
            bound, action = (known[0].bound, known[0].action) if known else MEANING[each["type"]]
            for name, text in given.items():
                if isinstance(text, str) and PLAIN.fullmatch(text):
                    action = action.replace(f"{{{name}}}", text)
            hidden = any(isinstance(mark, Says) and mark.secret for mark in known)
            yield Fault(key, bound, action, NOT_SHOWN if hidden else _at(given, place))

    def set_fields(self) -> dict[str, Any]:
        """Return the fields that are set, as JSON has them."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    @classmethod
    def declared(cls) -> dict[str, FieldInfo]:
        """Return the fields by their names in settings."""
        return {each.alias or name: each for name, each in cls.model_fields.items()}

    @classmethod
    def _in_objects(cls) -> dict[str, str]:
        """Return fields of objects as one word: idleEndMinutes means idleEnd.minutes."""
        return {
            f"{name}{inner[0].upper()}{inner[1:]}": f"{name}.{inner}"
            for name, field in cls.declared().items()
            for inner in fields_of(field)
        }


def setting(
    default: Any, text: str, *, see: str = "", alias: str | None = None, secret: bool = False
) -> Any:
    """Return the field of a setting: its default, and its line and page in the documentation.

    A page that begins with # is a part of docs/configuration.md.
    """
    page = f"configuration.md{see}" if see.startswith("#") else see
    description = f"{text}. See docs/{page}" if see else text
    return Field(default=default, description=description, alias=alias, repr=not secret)


def fields_of(declared: FieldInfo) -> dict[str, FieldInfo]:
    """Return the fields of a setting that is an object of known fields; {} of any other."""
    kind = bare_type(declared.annotation)
    is_model = isinstance(kind, type) and issubclass(kind, Model)
    return kind.declared() if is_model else {}


def json_type(kind: Any) -> str:
    """Return the type of a setting, or of an item, as Pulumi.yaml names it."""
    names = {bool: "boolean", int: "integer", str: "string", tuple: "array"}
    return names.get(get_origin(bare_type(kind)) or bare_type(kind), "object")


def parsed(declared: FieldInfo, text: str) -> Any:
    """Return what the text of a setting stands for; the text itself if it is nothing of its type.

    Blanks around a text mean nothing.
    """
    text = text.strip()
    match json_type(declared.annotation):
        case "boolean":
            return {"true": True, "false": False}.get(text, text)
        case "integer":
            return int(text) if WHOLE.fullmatch(text) else text
        case "string":
            return text
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if declared.default is None and not found:
        return None if found == {} else text  # nothing else asks for none
    return found


def unknown(
    key: str, name: str, known: Iterable[str], in_objects: Mapping[str, str] | None = None
) -> Fault:
    """Return the fault of a name that does not exist at a key, with the one that may be meant.

    `in_objects` are other names that somebody may write, with the field that each means.
    """
    meant = {each: each for each in known} | dict(in_objects or {})
    near = difflib.get_close_matches(name, meant, n=1)
    one_of = f"remove it, or use one of {', '.join(known)}"
    action = f"did you mean {meant[near[0]]}?" if near else one_of
    hidden = near and SECRET_NAME.search(near[0])
    return Fault(key, "no such setting", action, NOT_SHOWN if hidden else GIVEN)


def faults_of(error: ValidationError) -> tuple[Fault, ...]:
    """Return all that a model has found wrong."""
    (each,) = error.errors(include_url=False)
    return tuple(each["ctx"]["error"].args)


def bare_type(kind: Any) -> Any:
    """Return a type without its markers, and without None."""
    wrapped = get_origin(kind) in (Annotated, Union, UnionType)
    return bare_type(get_args(kind)[0]) if wrapped else kind


def _key(place: Iterable[int | str]) -> str:
    """Return the name of a place: hosts[0].address."""
    key = ""
    for step in place:
        key = f"{key}[{step}]" if isinstance(step, int) else _join(key, step)
    return key


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key and name else key or name


def _steps(key: str) -> list[int | str]:
    """Return the place that a key names."""
    found = re.findall(r"([^.\[\]]+)|\[(\d+)\]", key)
    return [int(index) if index else name for name, index in found]


def _at(raw: Any, place: Iterable[int | str]) -> Any:
    """Return the value at a place; None without one."""
    for step in place:
        try:
            raw = raw[step]
        except (KeyError, IndexError, TypeError):
            return None
    return raw
