"""Signed files: taken only whole, unchanged, under their own name and of this cluster."""

import hashlib
import hmac
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray import _raylet

from trainyard.store import signed

KEY = signed.derived("a token of 32 characters or more!")
NAME = "search/tuner.pkl"


@given(st.binary(max_size=300), st.data())
def test_one_changed_byte_and_every_cut_show(content, data):
    stored = signed.signed(content, NAME, KEY)
    assert signed.content_of(stored, NAME, KEY) == content
    cut = data.draw(st.integers(0, len(stored) - 1))
    assert signed.content_of(stored[:cut], NAME, KEY) is None
    place = data.draw(st.integers(0, len(stored) - 1))
    other = bytearray(stored)
    other[place] ^= 1 << data.draw(st.integers(0, 7))
    with suppress(signed.SignatureError):  # and a length that grew makes a file that was cut off
        assert signed.content_of(bytes(other), NAME, KEY) is None
    with pytest.raises(signed.SignatureError, match="signature is not that of this cluster"):
        signed.content_of(stored + b"\0", NAME, KEY)


def test_a_length_that_shrank_shows():
    stored = signed.signed(b"0123456789", NAME, KEY)
    with pytest.raises(signed.SignatureError, match="signature is not that of this cluster"):
        signed.content_of(stored.replace(b" 00000000000010 ", b" 00000000000000 "), NAME, KEY)


@pytest.mark.parametrize("stored", [b"\x80\x05.", b"{}", b"trainyard-signed-2 " + b"0" * 200])
def test_what_is_not_signed_is_refused(stored):
    with pytest.raises(signed.SignatureError, match="it is not signed"):
        signed.content_of(stored, NAME, KEY)


def test_a_signature_is_for_one_name_and_one_cluster():
    stored = signed.signed(b"state", NAME, KEY)
    for name, key in (("other/tuner.pkl", KEY), (NAME, signed.derived("another token"))):
        with pytest.raises(signed.SignatureError, match="signature is not that of this cluster"):
            signed.content_of(stored, name, key)


def test_a_state_that_was_signed_stays_readable():
    """Stored searches depend on the format and the key's purpose."""
    key = signed.derived("a token")
    purpose = b"trainyard: state of a search in the store, version 1"
    assert key == hmac.digest(b"a token", purpose, "sha256")
    mac = hmac.new(key, hashlib.sha256(b"run/file").digest() + b"abc", "sha256").hexdigest()
    stored = f"trainyard-signed-1 00000000000003 {mac}\nabc".encode()
    assert signed.signed(b"abc", "run/file", key) == stored


def test_the_token_is_the_one_that_ray_takes(tmp_path, monkeypatch):
    loader = _raylet.AuthenticationTokenLoader.instance()  # type: ignore[attr-defined]

    def key() -> bytes:
        loader.reset_cache()
        return signed.cluster_key()

    (tmp_path / "token").write_text("of-the-file-0123456789abcdef\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    try:
        with pytest.raises(signed.SignatureError, match="found no Ray token"):
            key()
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
        assert key() == signed.derived("of-the-file-0123456789abcdef")
        monkeypatch.setenv("RAY_AUTH_TOKEN", "of-the-variable-0123456789")
        assert key() == signed.derived("of-the-variable-0123456789")
    finally:
        loader.reset_cache()
