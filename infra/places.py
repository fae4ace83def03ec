"""All places that a stack can be in: the one list of them.

A place is a package with a module `place` (`infra.target.Place`). One whose machines come from
elsewhere also has a module `settings` with a SOURCE. They are imported by name, when they are
asked: they import the core, and a stack does not pay for the libraries of other places.
"""

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

# The first that the settings ask for is taken; this machine takes every stack.
PACKAGES = [
    "infra.hosts.ssh",
    "infra.hosts.lambda_cloud",
    "infra.runtimes.kubernetes",
    "infra.runtimes.containers",
    "infra.runtimes.this_machine",
]


def modules(name: str) -> Iterator[Any]:
    """Import a module of each place that has it, in the order of the list."""
    for package in PACKAGES:
        if find_spec(f"{package}.{name}"):
            yield import_module(f"{package}.{name}")
