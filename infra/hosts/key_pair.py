"""SSH key pairs that are drawn here."""

from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)


@dataclass(frozen=True, kw_only=True)
class KeyPair:
    """A key pair.

    Attributes:
        public: one line, as in authorized_keys.
        private: as in its file; "" when a passphrase protects that.
    """

    public: str
    private: str = field(repr=False)


def generate() -> KeyPair:
    """Return a new ed25519 pair."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return KeyPair(public=public.decode(), private=private.decode())
