"""SSH key pairs: new ones, and the user's files. A file that existed before is never changed."""

import contextlib
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_ssh_private_key,
)

from trainyard.access import key_file
from trainyard.access.key_file import KeyFileError, MissingKeyFileError


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


def same(one: str, other: str) -> bool:
    """Return whether two public keys are the same, whatever their comments."""
    return one.split()[:2] == other.split()[:2]


def read(path: Path) -> KeyPair | None:
    """Return the key pair of a private key's file, None when it is missing.

    Raises:
        KeyFileError: it is a symbolic link, others can read it, or it is not a private key.
    """
    content = _content(path)
    if content is None:
        return None
    load = load_ssh_private_key if "OPENSSH PRIVATE KEY" in content else load_pem_private_key
    try:
        key = load(content.encode(), None)
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    except TypeError:  # what the library raises for a key with a passphrase
        return KeyPair(public=_public_beside(path), private="")
    except (ValueError, UnsupportedAlgorithm) as error:
        raise KeyFileError(
            f"{path} is not a private key that SSH can use; name another file in sshKeyFile"
        ) from error
    return KeyPair(public=public.decode(), private=content)


def write(path: Path, pair: KeyPair) -> None:
    """Write a new private key's file in one step, for its user only.

    Raises:
        KeyFileError: the path exists already, or the file cannot be written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}-") as draft:
            os.fchmod(draft.fileno(), 0o600)  # a umask may have taken the user's own rights too
            draft.write(pair.private)
            draft.flush()
            os.fsync(draft.fileno())
            os.link(draft.name, path)  # which replaces nothing
    except OSError as error:
        raise KeyFileError(
            f"{path} cannot be made ({error.strerror}); make room, or name another file in "
            "sshKeyFile"
        ) from error


def remove(path: Path, private: str) -> bool:
    """Remove a private key's file if it still holds this key; return whether it did."""
    with contextlib.suppress(KeyFileError):
        if _content(path) == private:
            path.unlink(missing_ok=True)
            return True
    return False


def _content(path: Path) -> str | None:
    try:
        return key_file.read(path, "name the private key's own file in sshKeyFile")
    except MissingKeyFileError:
        return None


def _public_beside(path: Path) -> str:
    """Return the public key that ssh-keygen wrote next to a key with a passphrase."""
    beside = path.with_name(f"{path.name}.pub")
    try:
        return beside.read_text().strip()
    except OSError as error:
        raise KeyFileError(
            f"{path} has a passphrase, and {beside} cannot be read ({error.strerror}); make it "
            f"with ssh-keygen -y -f {path} > {beside}, or name a key without a passphrase"
        ) from error
