"""The tracking server as a service: its configuration, and its secrets."""

import configparser
from collections.abc import Callable
from typing import Any

import pytest

from cluster import tracking
from cluster.storage import Storage
from cluster.tracking import Tracking
from tests.unit.cluster.conftest import stack

STORE = Storage(
    url="s3://ray",
    internal="minio.internal:9000",
    bucket="ray",
    access_key="training",
    secret_key="canary",
)
FOLDER = Storage(url="file:///srv/results")


@pytest.fixture
def place(runtime, deploy) -> Callable[[Storage], tuple[Any, Any]]:
    """Place a server; the service with its secrets known, and the component's outputs."""

    def place(storage: Storage) -> tuple[Any, Any]:
        def program() -> Any:
            declared = stack(runtime, storage)
            made = Tracking("tracking", declared)
            service = runtime.placed["mlflow"]
            ((of_jobs,),) = (addition.secrets.values() for addition in declared.additions)
            return [dict(service.secrets), made.url, made.password, of_jobs]

        return runtime.placed, deploy(program)

    return place


def test_it_knows_one_user_with_the_generated_password(place, recorded):  # A45 F35
    placed, (secrets, url, password, of_jobs) = place(STORE)
    assert url == "http://host.example:5000"
    assert password == "value of tracking-admin"
    assert of_jobs.endswith(f"mlflow_tracking_password = {password}\n")
    config = configparser.ConfigParser()
    config.read_string(secrets["basic_auth.ini"])
    assert config["mlflow"]["admin_username"] == "admin"
    assert config["mlflow"]["admin_password"] == password
    # Others get no access to anything, and no account is available without the password.
    assert config["mlflow"]["default_permission"] == "NO_PERMISSIONS"
    service = placed["mlflow"]
    assert "--app-name=basic-auth" in service.arguments
    assert service.environment["MLFLOW_AUTH_CONFIG_PATH"] == "/run/secrets/basic_auth.ini"
    assert "--env-file=/run/secrets/server.env" in service.arguments
    assert "value of tracking-session-key" in secrets["server.env"]
    assert "--backend-store-uri=sqlite:////volumes/data/mlflow.db" in service.arguments
    assert service.volumes == [tracking.DATA, tracking.USERS]
    assert [each.path for each in service.health] == ["/health"]
    # Leftovers of an earlier stack must not decide which password counts.
    assert config["mlflow"]["database_uri"] == "sqlite:////volumes/users/users.db"
    assert not tracking.USERS.keep
    assert tracking.DATA.keep
    shown = f"{service.arguments} {service.environment} {service.files}"
    assert "value of" not in shown
    assert "canary" not in shown
    assert len(recorded.of_type(":Secret")) == 2


def test_artifacts_go_to_the_bucket_with_the_training_users_keys(place):  # A45
    placed, (secrets, *_) = place(STORE)
    service = placed["mlflow"]
    assert "--artifacts-destination=s3://ray/mlflow" in service.arguments
    assert "--serve-artifacts" in service.arguments
    assert service.environment["AWS_ENDPOINT_URL"] == "http://minio.internal:9000"
    named = service.environment["AWS_SHARED_CREDENTIALS_FILE"]
    assert named == "/run/secrets/aws-credentials"
    assert "aws_secret_access_key = canary" in secrets["aws-credentials"]


def test_without_a_bucket_artifacts_go_to_the_folder(place):
    placed, (secrets, *_) = place(FOLDER)
    service = placed["mlflow"]
    assert "--artifacts-destination=file:///srv/results/mlflow" in service.arguments
    assert not [name for name in service.environment if name.startswith("AWS_")]
    assert "aws-credentials" not in secrets


def test_it_answers_to_its_own_names_only_and_tells_nobody(place):
    placed, _ = place(STORE)
    service = placed["mlflow"]
    allowed = "127.0.0.1:*,localhost:*,mlflow.internal:5000,host.example:5000"
    assert f"--allowed-hosts={allowed}" in service.arguments
    assert "--cors-allowed-origins=http://host.example:5000" in service.arguments
    assert "--host=0.0.0.0" in service.arguments  # the runtime's address for it
    assert service.environment["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert service.environment["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] == "false"
    (port,) = service.ports
    assert (port.number, port.setting, port.published) == (5000, "trackingPort", True)
