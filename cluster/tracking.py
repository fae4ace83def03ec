"""MLflow's tracking server: keeps the logs of runs, in a database and the object store.

Its users are in a separate database that is removed with the server: MLflow takes the configured
password only for a user that does not exist yet, so the generated one always applies.
"""

from functools import partial
from typing import Annotated

import pulumi

from cluster import storage as stored
from cluster.descriptor import Component, Descriptor, Endpoint, Limit, PortSetting, Source, Stack
from cluster.inputs import join, lift
from cluster.model import one_of, setting
from cluster.ray_node import NodeAddition
from cluster.secret import PASSWORD_BYTES, Secret
from cluster.service import HealthCheck, Port, Service, Volume
from trainyard.access.outputs import TRACKING_URL
from trainyard.access.variables import TRACKING_CREDENTIALS_FILE

SERVICE = "mlflow"
USER = "admin"
SESSION_KEY_BYTES = 32
DATA = Volume(name="data", keep=True)
USERS = Volume(name="users")
AUTH_FILE = "basic_auth.ini"
# MLflow cannot read this one from a file of its own, only from a file of variables.
ENVIRONMENT_FILE = "server.env"
CREDENTIALS_FILE = "aws-credentials"
NODE_FILE = "mlflow-credentials"  # of Ray nodes
PORT = "trackingPort"
ARTIFACTS = "mlflow"  # folder of the bucket
# One user logs, and one process knows of every change: passwords need not be hashed each time.
AUTH_CACHE_SECONDS = 300


class Tracking(Component):
    """The tracking server."""

    def declare(self, stack: Stack) -> None:
        runtime, storage, port = stack.runtime, stack.storage, stack.port(PORT)
        drawn = Secret(f"{self.name}-{USER}", PASSWORD_BYTES, self.child)
        self.password = pulumi.Output.secret(drawn.value)
        session_key = Secret(f"{self.name}-session-key", SESSION_KEY_BYTES, self.child)
        inside = runtime.address(SERVICE, port)
        outside = runtime.public(SERVICE, port)
        credentials = runtime.file(SERVICE, CREDENTIALS_FILE)
        secrets: dict[str, pulumi.Input[str]] = {
            AUTH_FILE: self.password.apply(
                lambda value: auth_config(runtime.volume(SERVICE, USERS), value)
            ),
            ENVIRONMENT_FILE: pulumi.Output.secret(
                pulumi.Output.format("MLFLOW_FLASK_SERVER_SECRET_KEY={0}\n", session_key.value)
            ),
        }
        if storage.bucket:
            secrets[CREDENTIALS_FILE] = stored.credentials(storage)
        runtime.place(
            Service(
                name=SERVICE,
                program="mlflow",
                arguments=[
                    f"--env-file={runtime.file(SERVICE, ENVIRONMENT_FILE)}",
                    "server",
                    "--app-name=basic-auth",
                    join("--host=", runtime.listen_address(SERVICE)),
                    f"--port={port}",
                    # SQLite has one writer at a time; a second process is 270 MB more.
                    "--workers=1",
                    f"--backend-store-uri=sqlite:///{runtime.volume(SERVICE, DATA)}/mlflow.db",
                    "--serve-artifacts",
                    f"--artifacts-destination={storage.url}/{ARTIFACTS}",
                    lift(allowed_hosts, inside, outside),
                    # Pages of the server itself: through an address that is not this machine's own
                    # name, its browser counts as a foreign one.
                    join("--cors-allowed-origins=http://", outside),
                ],
                environment={
                    "MLFLOW_AUTH_CONFIG_PATH": runtime.file(SERVICE, AUTH_FILE),
                    # Otherwise it starts processes that run users' code.
                    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
                    "MLFLOW_DISABLE_TELEMETRY": "true",
                    "DO_NOT_TRACK": "true",
                    **stored.environment(storage, credentials),
                },
                secrets=secrets,
                volumes=[DATA, USERS],
                ports=[Port(number=port, setting=PORT, published=True)],
                health=[HealthCheck(port=port, path="/health")],
            ),
            self.child,
        )
        stack.additions.append(for_nodes(join("http://", inside), self.password))
        self.export(stack, ENDPOINT, outside)


def auth_config(users: str, password: str) -> str:
    """Return the file with MLflow's first user, in the folder of the users' database."""
    return (
        "[mlflow]\n"
        "default_permission = NO_PERMISSIONS\n"
        f"database_uri = sqlite:///{users}/users.db\n"
        f"admin_username = {USER}\n"
        f"admin_password = {password}\n"
        f"auth_cache_ttl_seconds = {AUTH_CACHE_SECONDS}\n"
    )


def allowed_hosts(inside: str, outside: str) -> str:
    """Return the flag that names the hosts which requests may be meant for.

    It refuses a foreign page whose own name points here. A tunnel has a port of its own on the
    user's machine.
    """
    return f"--allowed-hosts={','.join(['127.0.0.1:*', 'localhost:*', inside, outside])}"


def for_nodes(url: pulumi.Input[str], password: pulumi.Input[str]) -> NodeAddition:
    """Return the additions to Ray nodes that let jobs log, as the user `admin`."""
    credentials = pulumi.Output.format(
        "[mlflow]\nmlflow_tracking_username = {0}\nmlflow_tracking_password = {1}\n",
        USER,
        password,
    )
    return NodeAddition(
        environment=lambda runtime, service: {
            "MLFLOW_TRACKING_URI": url,
            TRACKING_CREDENTIALS_FILE: runtime.file(service, NODE_FILE),
            "MLFLOW_DISABLE_TELEMETRY": "true",
        },
        secrets={NODE_FILE: pulumi.Output.secret(credentials)},
    )


ENDPOINT = Endpoint(title="MLflow", url=TRACKING_URL, login="trackingPassword", user=USER)
DESCRIPTOR = Descriptor(
    program="mlflow",
    declare=partial(Tracking, "tracking"),
    source=Source.ENVIRONMENT,
    ports=(PortSetting(PORT, 5000, "MLflow"),),
    limit=Limit(memory_mib=4096, processes=1024),
    shared=True,
    settings={
        "tracking": (
            Annotated[str, one_of(("none", "mlflow"))],
            setting("none", "`mlflow` (a tracking server) or `none`", see="tracking.md"),
        )
    },
    wanted=lambda settings: bool(settings.of_services["tracking"] == "mlflow"),
    endpoints=(ENDPOINT,),
)
