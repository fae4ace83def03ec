"""The schema of resources: their properties, and the allowed values of each.

Only the properties that this project's program gives are known; any other is refused by its name.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from engine.errors import UnsupportedError
from engine.values import UNKNOWN, Properties, has_unknown


@dataclass(frozen=True, kw_only=True)
class Property:
    """One property of a resource, or of an object inside one.

    Attributes:
        required: the program has to give it.
        default: the only value that it can have, recorded where the program does not give it.
        computed: Docker chooses the value unless the program does.
        replaces: a change needs a new resource.
        ordered: the order of a list matters.
        fields: properties of the object, or of each object of the list.
        fault: returns the fault of a value, "" without one.
    """

    required: bool = False
    default: Any = None
    computed: bool = False
    replaces: bool = True
    ordered: bool = False
    fields: dict[str, "Property"] = field(default_factory=dict)
    fault: Callable[[Any], str] = lambda _: ""


Table = dict[str, "Property"]


def faults_of(values: Properties, table: Table, where: str) -> list[str]:
    """A line for each fault; values that a preview does not know have none.

    `where` is the type, and the path to an object inside.

    Raises:
        UnsupportedError: a property is not in the table, or has another value than its only one.
    """
    given = {key: value for key, value in values.items() if value is not None}
    if unknown := sorted(given.keys() - table.keys()):
        raise UnsupportedError(f"{where}.{unknown[0]}")
    faults = []
    for key, known in table.items():
        path, value = f"{where}.{key}", given.get(key)
        if value in (None, ""):
            faults += [f"{path} has to be given"] if known.required else []
            continue
        if known.default not in (None, value):
            raise UnsupportedError(f"{path} = {value!r}")
        if known.fields and value != UNKNOWN:
            for item in value if isinstance(value, list) else [value]:
                faults += faults_of(item, known.fields, path) if item != UNKNOWN else []
        if not has_unknown(value) and (fault := known.fault(value)):
            faults.append(f"{path}: {fault}")
    return faults
