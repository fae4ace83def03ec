"""Pulumi's encryption: only the CLI's ciphertexts are read."""

import base64
import hashlib

import pytest

from engine import crypto
from engine.crypto import Crypter
from engine.errors import EngineError

SALT = "v1:3/77fFO6W/8=:v1:grbGViW6bVIMqDp+:Z7Fen2VyWAIOtqQiUiyadzlD/l938w=="


def test_a_passphrase_of_the_pulumi_cli_is_understood(monkeypatch):
    keys = []
    real = hashlib.pbkdf2_hmac
    monkeypatch.setattr(
        hashlib, "pbkdf2_hmac", lambda *arguments: keys.append(arguments[3]) or real(*arguments)
    )
    crypto._key.cache_clear()
    crypter = Crypter("x", SALT)  # written by pulumi 3.260 with the passphrase x
    assert keys == [1_000_000]
    assert crypter.salt == SALT
    assert crypter.decrypt(crypter.encrypt("plain")) == "plain"
    assert crypter.encrypt("plain") != crypter.encrypt("plain")  # a nonce is used once


@pytest.fixture
def crypter(monkeypatch):
    monkeypatch.setattr(crypto, "ROUNDS", 10)  # a key as hard as it should be takes a moment
    crypto._key.cache_clear()
    yield Crypter.fresh("y")
    crypto._key.cache_clear()


def test_a_fresh_salt_is_like_the_cli_writes_it(crypter):
    version, raw, canary = crypter.salt.split(":", 2)
    assert (version, len(base64.b64decode(raw))) == ("v1", 8)
    assert crypter.decrypt(canary) == "pulumi"
    assert Crypter("y", crypter.salt).decrypt(crypter.encrypt("é")) == "é"
    assert Crypter.fresh("y").salt != crypter.salt
    _, nonce, sealed = crypter.encrypt("four").split(":")
    assert len(base64.b64decode(nonce)) == 12
    assert len(base64.b64decode(sealed)) == 4 + 16  # and the tag


@pytest.mark.parametrize("salt", ["", "v1:abc", "v1:a%b=:v1:c:d", "v1:a:v1:c:d", "{}", "a later"])
def test_a_salt_that_is_not_pulumis_is_one_message(crypter, salt):  # F18
    salt = crypter.salt.replace("v1:", "v2:", 1) if salt == "a later" else salt
    with pytest.raises(EngineError, match=r"the encryption salt .* is not Pulumi's; restore it"):
        Crypter("y", salt)


@pytest.mark.parametrize("phrase", ["", "Y", "y "])
def test_another_passphrase_is_refused_and_its_source_named(  # F18
    crypter, phrase, monkeypatch
):
    for variable in ("PULUMI_CONFIG_PASSPHRASE_FILE", "PULUMI_CONFIG_PASSPHRASE"):
        monkeypatch.setenv(variable, given := "a-file")
        named = given if variable.endswith("FILE") else variable
        said = f"^incorrect passphrase, that of {named}; set PULUMI_CONFIG_PASSPHRASE or "
        with pytest.raises(EngineError, match=said):
            Crypter(phrase, crypter.salt)


def test_a_salt_whose_word_is_another_is_refused(crypter):  # F18
    version, raw, _ = crypter.salt.split(":", 2)
    with pytest.raises(EngineError, match="incorrect passphrase"):
        Crypter("y", f"{version}:{raw}:{crypter.encrypt('another')}")


def test_a_ciphertext_that_was_changed_is_refused(crypter):  # F18 F35
    good = crypter.encrypt("plain")
    version, nonce, sealed = good.split(":")
    raw = bytearray(base64.b64decode(sealed))
    raw[0] ^= 1
    changed = base64.b64encode(raw).decode()
    other = Crypter.fresh("y").encrypt("plain")
    for text in (
        "",
        "v1:x",
        f"v2:{nonce}:{sealed}",
        f"{version}:{nonce}:{changed}",
        f"{version}:{nonce[4:]}:{sealed}",
        f"{version}::{sealed}",
        f"{version}:{nonce}:=",
        other,
    ):
        with pytest.raises(EngineError, match="a secret in the state cannot be decrypted"):
            crypter.decrypt(text)
    assert crypter.decrypt(good) == "plain"
