"""Finds a secret in a text, however it is written there."""

import base64
from collections.abc import Iterable, Mapping
from urllib.parse import quote

# Prefixes of a secret where both are encoded as one, as in a Basic login.
USERS = ("admin", "trainyard", "training")


def forms(secret: str) -> set[bytes]:
    """A secret as it is, quoted for a URL, and in base64, at any place of the encoded text."""
    found = {secret.encode(), quote(secret, safe="").encode(), secret.encode().hex().encode()}
    for user in USERS:
        found.add(base64.b64encode(f"{user}:{secret}".encode()))
    for shift in range(3):
        coded = base64.b64encode(b"\0" * shift + secret.encode())
        # What neighbours change: the first digits, and the last ones.
        inner = coded.rstrip(b"=")[(0, 2, 3)[shift] :][:-1]
        found |= {inner, inner.translate(bytes.maketrans(b"+/", b"-_"))}
    return found


def finds(secrets: Mapping[str, str], places: Iterable[tuple[str, bytes]]) -> list[str]:
    """The secrets that are found, with their places.

    Args:
        secrets: by name, for the report.
        places: names and contents.
    """
    looked_for = [(name, form) for name, secret in secrets.items() for form in forms(secret)]
    return sorted(
        {
            f"{name} in {place}"
            for place, content in places
            for name, form in looked_for
            if form in content
        }
    )
