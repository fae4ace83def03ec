"""Property values on their three ways: the SDK's wire, the provider, the state file.

On the wire and inside the engine a value is plain JSON in which a secret is a dict with Pulumi's
secret signature and an unknown is Pulumi's sentinel string. Providers of dynamic resources see
secrets unwrapped; the state file sees them encrypted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format, struct_pb2

from engine.assets import ARCHIVE, ASSET, SIGNATURE, is_asset, with_hash

if TYPE_CHECKING:
    from engine.crypto import Crypter

Properties = dict[str, Any]

SECRET = "1b47061264138c4ac30d75fd1eb44270"  # SIGNATURE's value for a secret  # noqa: S105
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"  # known only after the update


class UnsupportedValueError(Exception):
    """A value that only the pulumi CLI can handle: a resource reference."""


def from_struct(struct: struct_pb2.Struct) -> Properties:
    """Plain JSON of a protobuf struct; whole floats become ints, as in the state file.

    Raises:
        EngineError: an asset cannot be read.
    """
    values: Properties = _hashed(whole_numbers(json_format.MessageToDict(struct)))
    return values


def to_struct(values: Properties) -> struct_pb2.Struct:
    """The protobuf struct of plain JSON."""
    struct = struct_pb2.Struct()
    json_format.ParseDict(values, struct)
    return struct


def whole_numbers(value: Any) -> Any:
    """The value with whole floats as ints, as the state file has them.

    Raises:
        UnsupportedValueError: it holds a resource reference.
    """
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [whole_numbers(item) for item in value]
    if isinstance(value, dict):
        signature = value.get(SIGNATURE)
        if signature not in (None, SECRET, ASSET, ARCHIVE):
            raise UnsupportedValueError(
                "the embedded engine knows no resource references: export a resource's fields "
                "instead, or use the pulumi CLI"
            )
        return {key: whole_numbers(item) for key, item in value.items()}
    return value


def _hashed(value: Any) -> Any:
    """The value with the hashes of its assets, which the SDK leaves to the engine."""
    if is_asset(value):
        return value if has_unknown(value) else with_hash(value)
    if isinstance(value, list):
        return [_hashed(item) for item in value]
    if isinstance(value, dict):
        return {key: _hashed(item) for key, item in value.items()}
    return value


def is_secret(value: Any) -> bool:
    """True for a value that carries the secret signature."""
    return isinstance(value, dict) and value.get(SIGNATURE) == SECRET


def secret(value: Any) -> Properties:
    """The value, marked as a secret (once)."""
    return value if is_secret(value) else {SIGNATURE: SECRET, "value": reveal(value)}


def holds_secret(value: Any) -> bool:
    """True when any part of the value is a secret."""
    if isinstance(value, dict):
        return is_secret(value) or any(holds_secret(item) for item in value.values())
    return isinstance(value, list) and any(holds_secret(item) for item in value)


def secret_strings(value: Any, *, inside: bool = False) -> Iterator[str]:
    """The texts in the secrets of a value; in all of it where it is `inside` one."""
    if isinstance(value, str) and inside:
        yield value
    elif isinstance(value, dict):
        inside = inside or is_secret(value)
        for key, item in value.items():
            if key != SIGNATURE:
                yield from secret_strings(item, inside=inside)
    elif isinstance(value, list):
        for item in value:
            yield from secret_strings(item, inside=inside)


def reveal(value: Any) -> Any:
    """The value without any secret mark, however deep."""
    if is_secret(value):
        return reveal(value["value"])
    if isinstance(value, list):
        return [reveal(item) for item in value]
    if isinstance(value, dict):
        return {key: reveal(item) for key, item in value.items()}
    return value


def mask(value: Any) -> Any:
    """The value as a reader may see it: secrets and unknowns replaced by a word."""
    if is_secret(value):
        return "[secret]"
    if value == UNKNOWN:
        return "[unknown]"
    if isinstance(value, list):
        return [mask(item) for item in value]
    if isinstance(value, dict):
        return {key: mask(item) for key, item in value.items()}
    return value


def has_unknown(value: Any) -> bool:
    """True when any part of the value is known only after the update."""
    if isinstance(value, list):
        return any(has_unknown(item) for item in value)
    if isinstance(value, dict):
        return any(has_unknown(item) for item in value.values())
    return bool(value == UNKNOWN)


def mark_like(values: Any, model: Any) -> Any:
    """Mark as secret what the model marks: a provider saw the values in the clear."""
    if is_secret(model):
        inside = values["value"] if is_secret(values) else values
        return {SIGNATURE: SECRET, "value": mark_like(inside, model["value"])}
    if isinstance(values, dict) and isinstance(model, dict):
        return {
            key: mark_like(item, model[key]) if key in model else item
            for key, item in values.items()
        }
    if isinstance(values, list) and isinstance(model, list):
        same = min(len(values), len(model))
        return [mark_like(*pair) for pair in zip(values, model, strict=False)] + values[same:]
    return values


def secret_keys(values: Properties, keys: Iterable[str]) -> Properties:
    """The values with those of the named keys marked as secrets."""
    return values | {key: secret(values[key]) for key in keys if key in values}


class _AsItIs:
    """How Pulumi keeps secrets in a secret: marked, but not encrypted once more."""

    def encrypt(self, plaintext: str) -> str:
        return plaintext

    def decrypt(self, ciphertext: str) -> str:
        return ciphertext


def encrypt(value: Any, crypter: Crypter | _AsItIs) -> Any:
    """The value as the state file keeps it: every secret a ciphertext of its JSON."""
    if is_secret(value):
        plaintext = json.dumps(encrypt(value["value"], _AsItIs()), separators=(",", ":"))
        return {SIGNATURE: SECRET, "ciphertext": crypter.encrypt(plaintext)}
    if isinstance(value, list):
        return [encrypt(item, crypter) for item in value]
    if isinstance(value, dict):
        return {key: encrypt(item, crypter) for key, item in value.items()}
    return value


def decrypt(value: Any, crypter: Crypter | _AsItIs) -> Any:
    """The inverse of `encrypt`."""
    if is_secret(value):
        inside = json.loads(crypter.decrypt(value["ciphertext"]))
        return {SIGNATURE: SECRET, "value": decrypt(inside, _AsItIs())}
    if isinstance(value, list):
        return [decrypt(item, crypter) for item in value]
    if isinstance(value, dict):
        return {key: decrypt(item, crypter) for key, item in value.items()}
    return value
