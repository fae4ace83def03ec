"""A run comes home from a real object store, which is cut off and goes away meanwhile."""

import json
import os
import threading
from collections.abc import Iterator

import pytest

from cluster.object_store import STORES
from infra.machines import tools
from tests import stores
from tests.fakes.chaos_proxy import ChaosProxy
from tests.stores import BareStore
from trainyard.access.outputs import NOTHING
from trainyard.client import outputs, store
from trainyard.client.pull.transfer import Pulled, Transfer
from trainyard.resume import checkpoint_files
from trainyard.store import objects
from trainyard.tracking.runs import Run

pytestmark = pytest.mark.integration

NAME = "checkpoint_000001-abcd"
MODEL = {"job": "test", "file": "checkpoint.pt"}
BIG = os.urandom(50_000_000)  # six parts


@pytest.fixture(scope="module")
def store_server(store_program, tmp_path_factory) -> Iterator[BareStore]:
    folder = tmp_path_factory.mktemp("pulled")
    with (
        stores.bare(STORES[tools.DEFAULT], store_program, folder) as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        patch.setenv("AWS_ACCESS_KEY_ID", str(server.root.access))
        patch.setenv("AWS_SECRET_ACCESS_KEY", str(server.root.secret))
        run = Run(f"s3://{stores.BUCKET}", "first")
        run.start({"epochs": 1})
        run.write_metrics([{"epoch": 0, "loss": 1.0}])
        (folder / "run").mkdir()
        (folder / "run" / "checkpoint.pt").write_bytes(BIG)
        for number in range(3):
            (folder / "run" / f"small{number}").write_bytes(b"x" * number)
        place = objects.open_url(f"{run.storage}/first")
        checkpoint_files.store(place, NAME, folder / "run", MODEL)
        yield server


@pytest.fixture
def proxy(store_server) -> Iterator[ChaosProxy]:
    with ChaosProxy(store_server.port) as between:
        yield between


@pytest.fixture
def place(proxy, store_server) -> objects.Store:
    known = {
        **NOTHING,
        "project": "trainyard",
        "storageUrl": f"s3://{stores.BUCKET}",
        "objectStoreEndpoint": f"http://127.0.0.1:{proxy.port}",
        "accessKey": str(store_server.root.access),
        "secretKey": str(store_server.root.secret),
    }
    return store.open_store(outputs.parse(json.dumps(known), None, "test"))


def test_a_run_comes_from_a_store_that_goes_away_and_comes_back(place, proxy, tmp_path):  # C6
    back = threading.Timer(1, proxy.up)

    def down() -> None:
        proxy.down()
        back.start()

    proxy.after(5_000, down)  # the requests of the first parts
    try:
        pulled = Transfer(place, "first", tmp_path).run()
    finally:
        back.cancel()
    assert proxy.done
    assert pulled is not None
    assert (pulled.records, pulled.checkpoint) == (3, NAME)
    assert (tmp_path / NAME / "checkpoint.pt").read_bytes() == BIG
    assert (tmp_path / NAME / "small2").read_bytes() == b"xx"
    sent = proxy.sent
    assert Transfer(place, "first", tmp_path).run() == Pulled(0, NAME, "")
    assert proxy.sent - sent < 5_000  # lists, the first start, the mark: no object of size
