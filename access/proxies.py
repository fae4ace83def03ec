"""What is reached without the proxy that this user's environment names."""

import os


def direct(*hosts: str) -> str:
    """The value of NO_PROXY for this environment, with some more hosts."""
    before = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    return ",".join(filter(None, (before, *hosts)))
