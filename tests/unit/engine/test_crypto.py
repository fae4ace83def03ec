"""Pulumi's encryption: only the CLI's ciphertexts are read."""

import base64
import hashlib
from unittest.mock import Mock

import pytest

from engine import crypto, kept_key
from engine.crypto import Crypter
from engine.errors import EngineError
from engine.passphrase import make, read_file

SALT = "v1:3/77fFO6W/8=:v1:grbGViW6bVIMqDp+:Z7Fen2VyWAIOtqQiUiyadzlD/l938w=="


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    """Where keys are kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(kept_key, "COST", 2)
    _begin_anew()
    return tmp_path / "trainyard" / "keys"


@pytest.fixture
def derived(monkeypatch):
    """Numbers of rounds of the keys that were derived."""
    rounds = []
    real = hashlib.pbkdf2_hmac
    monkeypatch.setattr(
        hashlib, "pbkdf2_hmac", lambda *arguments: rounds.append(arguments[3]) or real(*arguments)
    )
    return rounds


def _begin_anew():
    """Forget all keys, as another process has none."""
    crypto._key.cache_clear()
    kept_key.keep.cache_clear()


def test_a_passphrase_of_the_pulumi_cli_is_understood(derived):
    crypter = Crypter("x", SALT)  # written by pulumi 3.260 with the passphrase x
    assert derived == [1_000_000]
    assert crypter.salt == SALT
    assert crypter.decrypt(crypter.encrypt("plain")) == "plain"
    assert crypter.encrypt("plain") != crypter.encrypt("plain")  # a nonce is used once


@pytest.fixture
def crypter(monkeypatch):
    monkeypatch.setattr(crypto, "ROUNDS", 10)  # a key as hard as it should be takes a moment
    yield Crypter.fresh("y")
    _begin_anew()


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
def test_another_passphrase_is_refused_and_its_source_named(crypter, phrase, monkeypatch):  # F18
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


def test_a_second_process_derives_no_key_and_a_wrong_passphrase_is_refused(  # F81
    crypter, derived, folder
):
    sealed = crypter.encrypt("plain")
    (kept,) = folder.iterdir()
    first = kept.read_bytes()
    assert (kept.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o600, 0o700)
    assert (
        crypto._key("y", base64.b64decode(crypter.salt.split(":")[1]))[0] not in kept.read_bytes()
    )
    for _ in range(2):
        _begin_anew()
        assert Crypter("y", crypter.salt).decrypt(sealed) == "plain"
        assert derived == []
        with pytest.raises(EngineError, match="incorrect passphrase"):
            Crypter("z", crypter.salt)  # neither taken, nor kept in place of the right one
        assert derived.pop() == crypto.ROUNDS
    assert kept.read_bytes() == first


@pytest.mark.parametrize("damage", ["empty", "cut", "changed", "link", "of another salt", "folder"])
def test_a_kept_key_that_is_not_whole_is_derived_and_kept_again(  # F81
    crypter, derived, folder, damage
):
    (kept,) = folder.iterdir()
    content = kept.read_bytes()
    kept.unlink()
    if damage == "link":
        kept.symlink_to("/dev/zero")
    elif damage == "folder":
        kept.mkdir()
    else:
        Crypter.fresh("y")
        (other,) = folder.iterdir()
        changed = content[:-1] + bytes([content[-1] ^ 1])
        wrong = {"empty": b"", "cut": content[:40], "changed": changed}
        kept.write_bytes(wrong.get(damage, other.read_bytes()))
        derived.clear()
    for _ in range(2):
        _begin_anew()
        assert Crypter("y", crypter.salt).decrypt(crypter.encrypt("plain")) == "plain"
    assert derived.count(crypto.ROUNDS) == (2 if damage == "folder" else 1)


def test_without_room_for_it_a_key_is_derived(crypter, derived, folder, monkeypatch, full):  # F81
    for path in folder.iterdir():
        path.unlink()
    monkeypatch.setattr(kept_key.files, "replace", full)
    for _ in range(2):
        _begin_anew()
        Crypter("y", crypter.salt)
    assert derived == [crypto.ROUNDS] * 2


def test_a_guess_costs_a_reader_of_the_file_about_as_much_as_one_of_the_state(monkeypatch):  # F81
    """As many as 2**14 blocks of 8: hashcat counts as many guesses a second as for the rounds."""
    monkeypatch.undo()
    assert (kept_key.COST, kept_key.BLOCK, crypto.ROUNDS) == (2**14, 8, 1_000_000)


@pytest.mark.parametrize(
    ("phrase", "cost"),
    [
        ("", 2),  # as many bits as the key: a guess may cost nothing
        ("y", 2**14),
        ("correct horse battery staple correct horse", 2**14),
        ("a" * 42 + "A", 2**14),
        ("0123456789-0123456789-0123456789-0123456780", 2**14),
        ("the_quick_brown_fox_jumps_over_the_lazy_dog", 2**14),  # it has the form of a drawn one
    ],
    ids=["drawn", "short", "a sentence", "one letter", "figures", "all letters"],
)
def test_only_a_passphrase_that_was_drawn_is_free_to_guess(  # P18
    phrase, cost, monkeypatch, tmp_path
):
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    scrypt = Mock(wraps=kept_key.Scrypt)
    monkeypatch.setattr(kept_key, "Scrypt", scrypt)
    kept_key._cipher(phrase or read_file(make()), bytes(kept_key.SALT_BYTES))
    assert scrypt.call_args.kwargs["n"] == cost
