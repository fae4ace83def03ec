"""A second copy of the results, in another S3 service or a folder, made while jobs run.

Machines that end themselves take their object store with them; the copy stays.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pulumi

from cluster import replicate
from cluster.descriptor import Descriptor, Limit, PortSetting, Setting, Source, Stack
from cluster.inputs import join
from cluster.service import HealthCheck, Port, Service
from cluster.storage import REGION, Storage

SERVICE = "replica"
PORT = "replicaPort"
TO, ENDPOINT, ACCESS, SECRET = (
    "replicateTo",
    "replicateEndpoint",
    "replicateAccessKey",
    "replicateSecretKey",
)
REGION_SETTING = "replicateRegion"
BUCKET = "s3://"
MODULE_FILE = "replicate.py"
SETTINGS_FILE = "replica.json"  # a secret: it has keys
# For a last pass: a checkpoint of 700 MB takes half a minute at 200 Mbit/s.
STOP_SECONDS = 60


class Replica(pulumi.ComponentResource):
    """The service that copies the results."""

    def __init__(self, name: str, stack: Stack, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:cluster:Replica", name, None, opts)
        runtime, storage, port = stack.runtime, stack.storage, stack.port(PORT)
        known = pulumi.Output.all(
            listen=runtime.listen_address(SERVICE),
            port=port,
            source=source_of(storage),
            target=_target(stack.settings.of_services),
        )
        runtime.place(
            Service(
                name=SERVICE,
                program="python",
                arguments=[
                    runtime.file(SERVICE, MODULE_FILE),
                    runtime.file(SERVICE, SETTINGS_FILE),
                ],
                files={MODULE_FILE: Path(replicate.__file__).read_text()},
                secrets={SETTINGS_FILE: pulumi.Output.secret(known.apply(json.dumps))},
                ports=[Port(number=port, setting=PORT)],
                health=[HealthCheck(port=port, path="/health")],
                stop_seconds=STOP_SECONDS,
            ),
            # It ends before the store does: its last pass reads it.
            pulumi.ResourceOptions(parent=self, depends_on=list(storage.needs)),
        )
        self.register_outputs({})


def source_of(storage: Storage) -> dict[str, pulumi.Input[str]]:
    """Return the place of the results, as replicate.py's `location` takes it."""
    if not storage.bucket:
        return {"url": storage.url}
    return {
        "url": storage.url,
        "endpoint": join("http://", storage.internal),
        "region": REGION,
        "access": storage.access_key,
        "secret": storage.secret_key,
    }


def _target(settings: Mapping[str, Any]) -> dict[str, str]:
    if not settings[TO].startswith(BUCKET):
        return {"url": f"file://{settings[TO]}"}
    return {
        "url": settings[TO],
        "endpoint": settings[ENDPOINT],
        "region": settings[REGION_SETTING],
        "access": settings[ACCESS],
        "secret": settings[SECRET],
    }


def declare(stack: Stack) -> None:
    """Declare the replica of a stack."""
    Replica(SERVICE, stack)


def _key(setting: str, description: str) -> Setting:
    return Setting(
        default="",
        description=description,
        pattern=r"\S*",
        bound="must have no blanks",
        action=f"set it with `python -m engine config set --secret {setting}`, or remove it",
        secret=True,
    )


DESCRIPTOR = Descriptor(
    program="python",
    service=SERVICE,
    declare=declare,
    source=Source.MODULE,
    ports=(
        PortSetting(
            key=PORT, default=8766, description="Health of the second copy", published=False
        ),
    ),
    limit=Limit(memory_mib=1024, processes=256),
    settings={
        TO: Setting(
            default="",
            description="Second copy of all results while jobs run: `s3://<bucket>/<prefix>`, or "
            "an absolute folder of the head's machine (process). See "
            "docs/train.md#a-second-copy-while-jobs-run",
            pattern=r"(s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._/-]*)?"
            r"|(/(?!\.\.?(/|$))[A-Za-z0-9._-]+)+)?",
            bound="must be s3://<bucket>[/<prefix>] or an absolute folder of the head's machine",
            action="write such a place, or remove it",
            runtimes=("process",),
        ),
        ENDPOINT: Setting(
            default="",
            description="URL of the S3 service of `replicateTo`",
            pattern=r"(https?://[A-Za-z0-9.-]+(:\d+)?)?",
            bound="must be the http or https URL of an S3 service",
            action="write such a URL, or remove it",
        ),
        REGION_SETTING: Setting(
            default="us-east-1",
            description="Region of its bucket",
            pattern=r"[a-z0-9-]+",
            bound="must be a region's name",
            action=f"write one, such as {REGION}",
        ),
        ACCESS: _key(ACCESS, "Its access key, as a secret"),
        SECRET: _key(SECRET, "Its secret key, as a secret"),
    },
    wanted=lambda settings: bool(settings.of_services[TO]),
)
