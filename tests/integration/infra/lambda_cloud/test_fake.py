"""The client and the fake cloud over real HTTP, and the fake's own promises."""

import httpx
import pytest

from infra.machines import keys
from infra.places.lambda_cloud.client import Client
from infra.places.lambda_cloud.errors import NotFoundError, ServerError
from tests.fakes.lambda_cloud import FakeCloud
from tests.waiting import wait_for

pytestmark = pytest.mark.integration

PUBLIC = keys.generate().public
TAGS = {"trainyard:node": "0", "trainyard:id": "abc"}
LAUNCH = {
    "region_name": "us-east-1",
    "instance_type_name": "gpu_1x_a10",
    "ssh_key_names": ["key"],
    "name": "node-0",
    "hostname": "node-0",
    "user_data": "#cloud-config\n",
    "tags": [{"key": key, "value": value} for key, value in TAGS.items()],
}


@pytest.fixture
def client(cloud):
    return Client(cloud.api_key, cloud.url)


@pytest.fixture
def request_(client):
    """A launch that the account takes."""
    client.add_ssh_key("key", PUBLIC)
    return LAUNCH


def test_an_instance_from_launch_to_gone(cloud, client, request_):
    cloud.account.boot_seconds = cloud.account.terminate_seconds = 0.5
    id_ = client.launch(request_)
    booting = client.instance(id_)
    assert (booting.status, booting.ip, booting.private_ip) == ("booting", None, None)
    assert booting.tags == TAGS
    assert (booting.name, cloud.account.instances[id_].hostname) == ("node-0", "node-0")
    assert (booting.region, booting.instance_type) == ("us-east-1", "gpu_1x_a10")
    assert booting.price_cents_per_hour == 75
    assert cloud.account.instances[id_].user_data == request_["user_data"]

    wait_for("the boot", lambda: client.instance(id_).status == "active")
    active = client.instance(id_)
    assert active.ip.startswith("127.66.")
    assert active.private_ip != active.ip
    assert client.instances() == [active]
    client.rename(id_, "other")
    assert client.instance(id_).name == "other"

    client.terminate(id_)
    assert client.instance(id_).status == "terminating"
    wait_for("the end", lambda: client.instances() == [])
    for call in (
        lambda: client.instance(id_),
        lambda: client.terminate(id_),
        lambda: client.rename(id_, "n"),
    ):
        with pytest.raises(NotFoundError):
            call()


def test_an_answer_that_the_document_does_not_have_is_caught():
    with FakeCloud() as cloud:
        cloud.account.types["gpu_1x_a10"]["specs"]["gpus"] = "one"
        with pytest.raises(ServerError, match="not as in the document"):
            Client(cloud.api_key, cloud.url).instance_types()
        (problem,) = cloud.journal.problems
        assert "'one' is not of type 'integer'" in problem


def test_a_request_that_the_document_does_not_have_is_refused(cloud):
    headers = {"Authorization": f"Bearer {cloud.api_key}"}
    with httpx.Client(base_url=cloud.url, headers=headers, trust_env=False) as http:
        launch = http.post("/api/v1/instance-operations/launch", json={"region_name": "us-east-1"})
        terminate = http.post("/api/v1/instance-operations/terminate", content=b"{")
        nothing = http.get("/api/v1/instance-operations")
    assert (launch.status_code, terminate.status_code, nothing.status_code) == (400, 400, 404)
    assert "instance_type_name" in launch.json()["error"]["message"]
