"""Keeps derived keys: a command then reads secrets without deriving the key again.

Each key is in a file of its own, encrypted under the passphrase by scrypt. Its parameters cost a
guess on a graphics card about as much as Pulumi's 1,000,000 rounds of PBKDF2, and this processor a
fraction. So a reader of the file learns no more than from the salt in the state, and nobody can
forge one. A passphrase that `make up` drew has as many random bits as the key. Nobody guesses it,
whatever a guess costs, so scrypt's costs are the least there. A file that cannot be opened or
decrypted is ignored.
"""

import functools
import hashlib
import os
from contextlib import suppress
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from engine import files
from engine.passphrase import is_drawn

COST, BLOCK = 2**14, 8  # 16 MiB
NO_COST = 2  # the least that scrypt has
SALT_BYTES, NONCE_BYTES, KEY_BYTES = 16, 12, 32
FILE_BYTES = SALT_BYTES + NONCE_BYTES + KEY_BYTES + 16  # AES-GCM's tag comes last


def find(passphrase: str, salt: bytes) -> bytes | None:
    """The key of a passphrase and a salt, None where none is kept."""
    try:
        with _file(salt).open("rb") as file:
            content = file.read(FILE_BYTES + 1)
        own, nonce = content[:SALT_BYTES], content[SALT_BYTES:][:NONCE_BYTES]
        return _cipher(passphrase, own).decrypt(nonce, content[SALT_BYTES + NONCE_BYTES :], salt)
    except Exception:  # also a library without scrypt, or a user without a home
        return None


@functools.cache
def keep(passphrase: str, salt: bytes, key: bytes) -> None:
    """Keep the key of a passphrase and a salt; without room for it, the next one derives it."""
    own, nonce = os.urandom(SALT_BYTES), os.urandom(NONCE_BYTES)
    with suppress(Exception):
        path = _file(salt)
        content = own + nonce + _cipher(passphrase, own).encrypt(nonce, key, salt)
        files.make_folder(path.parent, mode=0o700)
        files.replace(path, content, path.with_name(f".{path.name}.{os.getpid()}"))


def _file(salt: bytes) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return cache / "trainyard" / "keys" / hashlib.sha256(salt).hexdigest()[:32]


def _cipher(passphrase: str, salt: bytes) -> AESGCM:
    cost = NO_COST if is_drawn(passphrase) else COST
    derived = Scrypt(salt=salt, length=KEY_BYTES, n=cost, r=BLOCK, p=1)
    return AESGCM(derived.derive(passphrase.encode()))
