"""Results of a stack in a second S3 service: available when the stack's own store is not."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import replica
from tests import stores
from tests.stores import BUCKET
from trainyard.client import outputs as contract
from trainyard.client.losses import unpulled
from trainyard.client.store import open_store
from trainyard.resume import checkpoint_files
from trainyard.store import objects

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

WEIGHTS = b"w" * 20_000_000  # several parts
RUN = "replicated"


@pytest.fixture
def log_in(monkeypatch) -> Iterator[Callable[[str, str, str], None]]:
    """Have this process use another store, as a stack's job does."""

    def use(endpoint: str, access: str, secret: str) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", access)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
        stores.forget_clients()

    yield use
    stores.forget_clients()


@pytest.fixture(scope="module")
def stack(stack_with_minio) -> Any:
    return stack_with_minio


def test_results_are_copied_while_the_stack_runs_whoever_dies(  # F45
    stack, outputs_file, second_store, wait_for, started_below, log_in, tmp_path
):
    outputs = contract.read(None, outputs_file)
    place = open_store(outputs)
    place.write(f"{RUN}/config.json", b"{}")
    place.write(f"{RUN}/metrics.jsonl", b'{"epoch": 0}\n')

    def safe() -> bool:
        return RUN not in unpulled(place)

    wait_for(safe, 60)
    # The second service is away, and the copying process is killed.
    second_store.kill()
    (process,) = (
        each
        for each in started_below(stack.folder)
        if any(word.endswith(replica.MODULE_FILE) for word in each.cmdline())
    )
    process.kill()
    log_in(outputs.object_store_endpoint, outputs.access_key, outputs.secret_key)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "checkpoint.pt").write_bytes(WEIGHTS)
        run = objects.open_url(f"{outputs.storage_url}/{RUN}")
        checkpoint_files.store(run, "checkpoint_000001-abcd", Path(folder), {})
    assert not safe()
    second_store.start()
    wait_for(safe, 60)
    # A job of another stack goes on with the copy alone.
    root = second_store.root
    log_in(second_store.endpoint, str(root.access), str(root.secret))
    copied = objects.open_url(f"s3://{BUCKET}/copy/{RUN}")
    ((name, _),) = checkpoint_files.valid(copied)
    checkpoint_files.fetch(copied, name, tmp_path)
    assert (tmp_path / "checkpoint.pt").read_bytes() == WEIGHTS
