"""All places that a stack can be in: the one list of them.

A place is a package with a module `place` (`infra.places.target.Place`). One whose machines come
from elsewhere also has a module `settings` with a SOURCE. They are imported by name, when they are
asked: they import the core, and a stack does not pay for the libraries of other places.

To add a cloud, read `tests/fakes/shelf`, which is a small one, and write a package like it:

1. `account.py`: the few calls of its API, and the Account (`infra/machines/holdings.py`): what it
   holds at which price, whether an instance is gone, and how one ends. Tags are those of
   `infra/machines/identity.py`.
2. `resources.py`: a provider and a resource for each role that `docs/ARCHITECTURE.md` lists. They
   derive from `infra/machines/cloud_provider.py`. A launch looks for the stack's tags first. Each
   type of resource has a line in `cluster/provider_kinds.py`.
3. `settings.py`: the model of its setting, and the SOURCE with the Cloud
   (`infra/machines/source.py`).
4. `place.py`: whether the settings ask for it, and its Stack. Instances become hosts by
   `infra/machines/rented_machine.py`, and hosts a Stack by `infra/machines/target.py`.
5. Name the package in PACKAGES below, and the word of its resources' types in
   `tests/unit/test_house.py`; `make docs` then writes its settings into `Pulumi.yaml`.
6. Let `tests/integration/infra/test_sixth_place.py` run with it, as with the shelf.
"""

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

# The first that the settings ask for is taken; this machine takes every stack.
PACKAGES = [
    "infra.places.ssh",
    "infra.places.lambda_cloud",
    "infra.places.kubernetes",
    "infra.places.containers",
    "infra.places.this_machine",
]


def modules(name: str) -> Iterator[Any]:
    """Import a module of each place that has it, in the order of the list."""
    for package in PACKAGES:
        if find_spec(f"{package}.{name}"):
            yield import_module(f"{package}.{name}")
