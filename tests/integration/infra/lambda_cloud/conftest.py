"""A fake Lambda Cloud on loopback."""

from collections.abc import Iterator

import pytest

from tests.fakes.lambda_cloud import FakeCloud
from tests.integration.infra.lambda_cloud.rented import RentedStack


@pytest.fixture
def cloud() -> Iterator[FakeCloud]:
    """A cloud without bounds, whose answers all matched Lambda's document."""
    with FakeCloud() as cloud:
        yield cloud
    assert cloud.journal.problems == []
    assert cloud.account.machine_errors == []


@pytest.fixture
def rented(tmp_path, cloud, engines, monkeypatch) -> Iterator[RentedStack]:
    """A stack that rents from the cloud; nothing of it runs at the end."""
    for name in ("LAMBDALABS_API_KEY", "PULUMI_CONFIG_PASSPHRASE_FILE"):
        monkeypatch.delenv(name, raising=False)
    # 1/200 of real time: quick, and still no busy loop.
    pace = {"TRAINYARD_LAMBDA_PACE": "0.005"}
    place = {"PULUMI_CONFIG_PASSPHRASE": "x", "PULUMI_BACKEND_URL": f"file://{tmp_path}/backend"}
    for name, value in (cloud.environment() | pace | place | {"COLUMNS": "200"}).items():
        monkeypatch.setenv(name, value)
    stack = RentedStack(tmp_path, cloud, engines)
    yield stack
    stack.end()
