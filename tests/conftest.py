"""What all tests have in common."""

pytest_plugins = ["tests.cost"]
