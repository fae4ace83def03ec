"""What this machine has in common for all stacks is each test's own here."""

from pathlib import Path

import pytest

from infra.machines.host_key import HostKeyProvider
from tests.machine_fixtures import claimed, engine  # noqa: F401


@pytest.fixture
def key_file(tmp_path) -> Path:
    """A private key of SSH without a passphrase."""
    path = tmp_path / "id_ed25519"
    path.write_text(HostKeyProvider().create({"name": "x"}).outs["privateKey"])
    path.chmod(0o600)
    return path
