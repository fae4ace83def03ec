"""Property values on their three ways: the SDK's wire, the provider, the state file.

On the wire and inside the engine a value is plain JSON in which a secret is a dict with Pulumi's
secret signature and an unknown is Pulumi's sentinel string. Providers of dynamic resources see
secrets unwrapped; the state file sees them encrypted.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from engine.assets import ARCHIVE, ASSET, SIGNATURE
from engine.errors import EngineError

Properties = dict[str, Any]

SECRET = "1b47061264138c4ac30d75fd1eb44270"  # SIGNATURE's value for a secret  # noqa: S105
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"  # known only after the update


def each(value: Any, change: Callable[[Any], Any]) -> Any:
    """A list or an object with its items changed; any other value as it is."""
    if isinstance(value, list):
        return [change(item) for item in value]
    if isinstance(value, dict):
        return {key: change(item) for key, item in value.items()}
    return value


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def whole_numbers(value: Any) -> Any:
    """The value with whole floats as ints, as the state file has them.

    Raises:
        EngineError: it holds a resource reference.
    """
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict) and value.get(SIGNATURE) not in (None, SECRET, ASSET, ARCHIVE):
        raise EngineError(
            "the embedded engine does not know resource references: export a resource's fields "
            "instead, or use the pulumi CLI"
        )
    return each(value, whole_numbers)


def is_secret(value: Any) -> bool:
    """True for a value that carries the secret signature."""
    return isinstance(value, dict) and value.get(SIGNATURE) == SECRET


def secret(value: Any) -> Properties:
    """The value, marked as a secret (once)."""
    return value if is_secret(value) else {SIGNATURE: SECRET, "value": reveal(value)}


def holds_secret(value: Any) -> bool:
    """True when any part of the value is a secret."""
    return is_secret(value) or any(holds_secret(item) for item in _items(value))


def secret_strings(value: Any, *, inside: bool = False) -> Iterator[str]:
    """The texts in the secrets of a value; in all of it where it is `inside` one."""
    if is_secret(value):
        yield from secret_strings(value["value"], inside=True)
    elif isinstance(value, str):
        yield from [value] if inside else []
    else:
        for item in _items(value):
            yield from secret_strings(item, inside=inside)


def reveal(value: Any) -> Any:
    """The value without any secret mark, however deep."""
    return reveal(value["value"]) if is_secret(value) else each(value, reveal)


def mask(value: Any) -> Any:
    """The value as a reader may see it: secrets and unknowns replaced by a word."""
    if is_secret(value):
        return "[secret]"
    return "[unknown]" if value == UNKNOWN else each(value, mask)


def has_unknown(value: Any) -> bool:
    """True when any part of the value is known only after the update."""
    return bool(value == UNKNOWN) or any(has_unknown(item) for item in _items(value))


def mark_like(values: Any, model: Any) -> Any:
    """Copy the model's secret marks: a provider saw the values in the clear."""
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
    """The values, those of these keys marked as secrets."""
    return values | {key: secret(values[key]) for key in keys if key in values}


def encrypt(value: Any, seal: Callable[[str], str]) -> Any:
    """The value as the state file keeps it: every secret a ciphertext of its JSON."""
    if is_secret(value):
        # A secret in a secret is marked, but not encrypted again.
        plaintext = json.dumps(encrypt(value["value"], str), separators=(",", ":"))
        return {SIGNATURE: SECRET, "ciphertext": seal(plaintext)}
    return each(value, lambda item: encrypt(item, seal))


def decrypt(value: Any, unseal: Callable[[str], str]) -> Any:
    """The inverse of `encrypt`."""
    if is_secret(value):
        inside = json.loads(unseal(value["ciphertext"]))
        return {SIGNATURE: SECRET, "value": decrypt(inside, str)}
    return each(value, lambda item: decrypt(item, unseal))
