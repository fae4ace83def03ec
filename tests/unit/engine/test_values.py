"""Secrets in secrets, as the plugins of Pulumi mark them."""

import json

from engine.crypto import Crypter
from engine.values import (
    SECRET,
    SIGNATURE,
    decrypt,
    encrypt,
    holds_secret,
    mark_like,
    reveal,
    secret,
    secret_strings,
)

NESTED = {"a": {SIGNATURE: SECRET, "value": {"host": "h", "key": secret("k")}}}


def test_a_secret_in_a_secret_is_marked_but_not_encrypted_once_more():
    crypter = Crypter.fresh("passphrase")
    sealed = encrypt(NESTED, crypter.encrypt)
    inside = json.loads(crypter.decrypt(sealed["a"]["ciphertext"]))
    assert inside == {"host": "h", "key": {SIGNATURE: SECRET, "ciphertext": '"k"'}}
    assert decrypt(sealed, crypter.decrypt) == NESTED


def test_marks_in_marks_come_back_after_a_provider_saw_the_values_in_the_clear():
    assert mark_like(reveal(NESTED), NESTED) == NESTED
    # A provider's marks inside of the program's marks are kept.
    checked = {"a": {"host": "h", "key": secret("k")}}
    assert mark_like(checked, {"a": secret({"host": "h", "key": "k"})}) == NESTED


def test_secrets_are_found_however_deep():
    values = {"open": "o", "list": [{"x": secret(["s", {"t": "u"}])}], **NESTED}
    assert sorted(secret_strings(values)) == ["h", "k", "s", "u"]
    assert holds_secret(values)
    assert not holds_secret({"open": ["o", {"x": "y"}]})
