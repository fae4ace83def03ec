"""What this machine has in common for all stacks is each test's own here."""

from tests.machine_fixtures import claimed, engine  # noqa: F401
