"""Property values in protobuf's form, apart because reading a state does not need protobuf."""

from typing import Any

from google.protobuf import json_format, struct_pb2

from engine.assets import is_asset, with_hash
from engine.values import Properties, each, has_unknown, whole_numbers


def from_struct(struct: struct_pb2.Struct) -> Properties:
    """Plain JSON of a protobuf struct; whole floats become ints, as in the state file.

    Assets get their hashes, which the SDK leaves to the engine.

    Raises:
        EngineError: an asset cannot be read, or a value is a resource reference.
    """
    values: Properties = _hashed(whole_numbers(json_format.MessageToDict(struct)))
    return values


def to_struct(values: Properties) -> struct_pb2.Struct:
    """The protobuf struct of plain JSON."""
    struct = struct_pb2.Struct()
    json_format.ParseDict(values, struct)
    return struct


def _hashed(value: Any) -> Any:
    if is_asset(value):
        return value if has_unknown(value) else with_hash(value)
    return each(value, _hashed)
