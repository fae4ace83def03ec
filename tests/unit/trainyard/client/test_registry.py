"""What `train promote` and `models:/NAME@ALIAS` refuse; a real MLflow is in integration."""

import json
import urllib.parse

import pytest
import urllib3

from tests import web
from trainyard.client import outputs, registry
from trainyard.client.errors import ClientError
from trainyard.tracking import runs

PATH = "/api/2.0/mlflow/"
TRACKED = b'{"run_id": "0af", "experiment_id": "3"}'


@pytest.fixture
def mlflow(values):
    """An MLflow of the stack's run `first`: its answers by path, the requests that it got."""
    said, asked = {}, []
    login = urllib3.make_headers(basic_auth="admin:canary-password")["authorization"]

    def answer(request):
        if request.headers["Authorization"] != login:
            return 401, b""
        path, _, query = request.path.removeprefix(PATH).partition("?")
        sent = json.loads(request.body) if request.body else dict(urllib.parse.parse_qsl(query))
        asked.append((request.command, path, sent))
        status, content = said.get(path, (404, {"message": f"no {path} here"}))
        return status, json.dumps(content).encode()

    with web.serving(answer) as server:
        known = {"trackingUrl": server.url, "trackingPassword": "canary-password"}
        stack = outputs.parse(json.dumps(values | known), None, "test")
        runs.Run(stack.storage_url, "first").start({"epochs": 1})
        yield stack, said, asked


def write_tracked(stack, content=TRACKED):
    runs.Run(stack.storage_url, "first").write("tracking.json", content)


def test_the_newest_version_that_the_run_made_gets_the_alias(mlflow):
    stack, said, asked = mlflow
    write_tracked(stack)
    versions = [{"name": "tiny", "version": each} for each in ("9", "10", "2")]
    said["model-versions/search"] = (200, {"model_versions": versions})
    said["registered-models/alias"] = (200, {})
    assert registry.promote("first", "champion", stack) == ("tiny", "10")
    (_, _, wanted), change = asked
    assert wanted["filter"] == "run_id='0af'"
    named = {"name": "tiny", "version": "10", "alias": "champion"}
    assert change == ("POST", "registered-models/alias", named)


ODD = b'{"run_id": "x\' OR 1", "experiment_id": "3"}'


@pytest.mark.parametrize(
    ("run", "tracked"), [("second", TRACKED), ("first", b""), ("first", ODD), ("first", TRACKED)]
)
def test_a_run_without_a_version_is_not_promoted(mlflow, run, tracked):
    stack, said, asked = mlflow
    write_tracked(stack, tracked)
    said["model-versions/search"] = (200, {"model_versions": []})
    why = "'first' has no version of a model" if run == "first" else "no run is called 'second'"
    with pytest.raises(ClientError, match=why):
        registry.promote(run, "champion", stack)
    assert len(asked) == ((run, tracked) == ("first", TRACKED))  # nothing is changed


def test_an_alias_that_mlflow_refuses_and_a_stack_without_mlflow_are_one_message(mlflow):
    stack, said, _ = mlflow
    write_tracked(stack)
    said["model-versions/search"] = (200, {"model_versions": [{"name": "a", "version": "1"}]})
    said["registered-models/alias"] = (400, {"message": "latest is reserved"})
    with pytest.raises(ClientError, match=r"^MLflow refuses this: latest is reserved$"):
        registry.promote("first", "latest", stack)
    with pytest.raises(ClientError, match="has no MLflow: run `train config set tracking mlflow`"):
        registry.promote("first", "champion", stack.at({"trackingUrl": ""}))
    with pytest.raises(ClientError, match=r"^MLflow does not answer at http://127.0.0.1:1 "):
        registry.promote("first", "champion", stack.at({"trackingUrl": "http://127.0.0.1:1"}))


@pytest.mark.parametrize(
    ("address", "asked"),
    [
        ("models:/tiny@best", ("registered-models/alias", {"name": "tiny", "alias": "best"})),
        ("models:/tiny/12", ("model-versions/get", {"name": "tiny", "version": "12"})),
    ],
)
def test_an_address_is_the_checkpoint_of_a_run_of_this_store_only(mlflow, address, asked):
    stack, said, requests = mlflow
    inside = f"{stack.storage_url}/first/checkpoint_000001-aaaa"
    said[asked[0]] = (200, {"model_version": {"source": inside}})
    assert registry.version(address, stack) == ("tiny", "first", "checkpoint_000001-aaaa")
    assert requests == [("GET", *asked)]
    for source in (
        f"{stack.storage_url}-of-another/first/checkpoint_000001-aaaa",
        f"{stack.storage_url}/first/checkpoint_000001-aaaa/..",
        f"{stack.storage_url}/first/output",
        f"{stack.storage_url}/checkpoint_000001-aaaa",
    ):
        said[asked[0]] = (200, {"model_version": {"source": source}})
        with pytest.raises(ClientError, match=r"which is not a checkpoint in .*: serve it in"):
            registry.version(address, stack)
    for odd in ([], {}, {"model_version": {"source": 3}}):
        said[asked[0]] = (200, odd)
        with pytest.raises(ClientError, match=f"MLflow does not say where {address} is"):
            registry.version(address, stack)


@pytest.mark.parametrize(
    "address",
    ["models:/tiny", "models:/@best", "models:/tiny/best", "models:/a/b@best", "models:/tiny@a@b"],
)
def test_what_is_no_address_is_not_asked_for(mlflow, address):
    stack, _, asked = mlflow
    with pytest.raises(ClientError, match="is not models:/NAME@ALIAS or models:/NAME/VERSION"):
        registry.version(address, stack)
    assert asked == []
