"""Pulumi's passphrase encryption: PBKDF2-HMAC-SHA256 for the key, AES-256-GCM for the text.

Format as the pulumi CLI writes it (its passphrase secrets manager): a salt is
`v1:<base64 salt>:<ciphertext of the word "pulumi">`, a ciphertext `v1:<base64 nonce>:<base64>`.
"""

import base64
import binascii
import functools
import hashlib
import hmac
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from engine import kept_key
from engine.errors import EngineError
from engine.passphrase import FILE, PHRASE, source

ROUNDS = 1_000_000
SALT_BYTES = 8
KEY_BYTES = 32
NONCE_BYTES = 12
SEAL = b"trainyard: seal of a state"  # the key of seals is derived for this use alone
CANARY = "pulumi"  # encrypted next to the salt: tells a wrong passphrase from a right one


@functools.cache
def _key(passphrase: str, salt: bytes) -> tuple[bytes, bool]:
    """The key, and whether it was kept."""
    if key := kept_key.find(passphrase, salt):
        return key, True
    return hashlib.pbkdf2_hmac("sha256", passphrase.encode(), salt, ROUNDS, KEY_BYTES), False


class Crypter:
    """Encrypts and decrypts with the key of a passphrase and Pulumi's salt string.

    Raises:
        EngineError: the salt is malformed or the passphrase is not the one it was made with.
    """

    def __init__(self, passphrase: str, salt: str) -> None:
        try:
            version, encoded, canary = salt.split(":", 2)
            if version != "v1":
                raise ValueError(version)
            raw = base64.b64decode(encoded, validate=True)
            key, kept = _key(passphrase, raw)
        except (ValueError, binascii.Error):
            raise EngineError(
                f"the encryption salt {salt[:24]!r} is not Pulumi's; restore it from a backup"
            ) from None
        self.salt = salt
        self._aead = AESGCM(key)
        self._seal_key = hmac.digest(key, SEAL, "sha256")
        try:
            right = self.decrypt(canary) == CANARY
        except EngineError:
            right = False
        if not right:
            raise EngineError(
                f"incorrect passphrase, that of {source()}; set {PHRASE} or {FILE} to the one that "
                "this stack was made with"
            )
        if not kept:
            kept_key.keep(passphrase, raw, key)

    @classmethod
    def fresh(cls, passphrase: str) -> "Crypter":
        """A crypter with a new random salt."""
        raw = os.urandom(SALT_BYTES)
        aead = AESGCM(_key(passphrase, raw)[0])
        return cls(passphrase, f"v1:{base64.b64encode(raw).decode()}:{_seal(aead, CANARY)}")

    def seal(self, digest: str) -> str:
        """A code of a checksum that only this passphrase makes (HMAC-SHA256, hexadecimal)."""
        return hmac.digest(self._seal_key, digest.encode(), "sha256").hex()

    def encrypt(self, plaintext: str) -> str:
        """Ciphertext in Pulumi's format, with a nonce of its own."""
        return _seal(self._aead, plaintext)

    def decrypt(self, ciphertext: str) -> str:
        """Plaintext of a ciphertext in Pulumi's format.

        Raises:
            EngineError: it was made with another key, or it was changed since.
        """
        try:
            version, nonce, sealed = ciphertext.split(":", 2)
            if version != "v1":
                raise ValueError(version)
            opened = self._aead.decrypt(base64.b64decode(nonce), base64.b64decode(sealed), None)
        except (ValueError, InvalidTag, binascii.Error):
            raise EngineError(
                "a secret in the state cannot be decrypted: it was changed, or made with another "
                "passphrase"
            ) from None
        return opened.decode()


def _seal(aead: AESGCM, plaintext: str) -> str:
    nonce = os.urandom(NONCE_BYTES)
    sealed = aead.encrypt(nonce, plaintext.encode(), None)
    return f"v1:{base64.b64encode(nonce).decode()}:{base64.b64encode(sealed).decode()}"
