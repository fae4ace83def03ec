"""The fake cloud speaks as the API's document says, and refuses what is not in it."""

import httpx
import pytest

from infra.places.lambda_cloud.client import Client
from infra.places.lambda_cloud.errors import ServerError
from tests.fakes.lambda_cloud import FakeCloud

pytestmark = pytest.mark.integration


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
