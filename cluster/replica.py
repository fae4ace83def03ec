"""A second copy of the results, in another S3 service or a folder, made while jobs run.

Machines that end themselves take their object store with them; the copy stays.
"""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import pulumi
from pydantic import Field

import node
from cluster.descriptor import Component, Descriptor, Limit, PortSetting, Source, Stack
from cluster.inputs import join
from cluster.model import Fault, Model, Only, matching, setting
from cluster.service import HealthCheck, Port, Service
from cluster.storage import REGION, Storage

SERVICE = "replica"
PORT = "replicaPort"
SETTING = "replicate"
BUCKET = "s3://"
MODULE_FILE = "replicate.py"
# Modules of trainyard/store that replicate.py needs: machines lack that package.
STORE = ("__init__", "objects", "archive", "s3_requests", "request_body")
SETTINGS_FILE = "replica.json"  # a secret: it has keys
# For a last pass: a checkpoint of 700 MB takes half a minute at 200 Mbit/s.
STOP_SECONDS = 60


KEY = matching(
    r"\S*",
    "must be a key without blanks",
    "set it with `train config set --secret --path {key}`, or remove it",
    secret=True,
)


class Replicate(Model):
    """The place of a second copy.

    Attributes:
        to: s3://<bucket>[/<prefix>], or an absolute folder of the head's machine.
    """

    to: Annotated[
        str,
        matching(
            r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._/-]*)?"
            r"|(/(?!\.\.?(/|$))[A-Za-z0-9._-]+)+",
            "must be s3://<bucket>[/<prefix>] or an absolute folder of the head's machine",
            "write such a place, or remove replicate",
        ),
    ]
    endpoint: Annotated[
        str,
        matching(
            r"(https?://[A-Za-z0-9.-]+(:\d+)?)?",
            "must be the http or https URL of an S3 service",
            "write such a URL, or remove it",
        ),
    ] = ""
    region: Annotated[
        str, matching(r"[a-z0-9-]+", "must be a region's name", f"write one, such as {REGION}")
    ] = REGION
    access_key: Annotated[str, KEY] = Field(default="", repr=False)
    secret_key: Annotated[str, KEY] = Field(default="", repr=False)

    def faults(self) -> Iterator[Fault]:
        """Yield what a bucket lacks, or a folder does not use."""
        fields = {
            "endpoint": self.endpoint,
            "accessKey": self.access_key,
            "secretKey": self.secret_key,
        }
        if not self.to.startswith(BUCKET):
            for key in (key for key, value in fields.items() if value):
                bound = f"is of a bucket, and to = {self.to!r}"
                yield Fault(key, bound, "remove it, or set replicate.to to s3://<bucket>")
        elif missing := [f"{SETTING}.{key}" for key, value in fields.items() if not value]:
            action = "set what is missing, keys with "
            action += "`train config set --secret --path replicate.accessKey`"
            yield Fault("to", f"lacks {' and '.join(missing)}", action)

    @property
    def target(self) -> dict[str, str]:
        """The place, as replicate.py's `location` takes it."""
        if not self.to.startswith(BUCKET):
            return {"url": f"file://{self.to}"}
        return {
            "url": self.to,
            "endpoint": self.endpoint,
            "region": self.region,
            "access": self.access_key,
            "secret": self.secret_key,
        }


class Replica(Component):
    """The service that copies the results."""

    def declare(self, stack: Stack) -> None:
        runtime, storage, port = stack.runtime, stack.storage, stack.port(PORT)
        known = pulumi.Output.all(
            listen=runtime.listen_address(SERVICE),
            port=port,
            source=source_of(storage),
            target=stack.settings.of_services[SETTING].target,
        )
        runtime.place(
            Service(
                name=SERVICE,
                program="python",
                arguments=[
                    runtime.file(SERVICE, MODULE_FILE),
                    runtime.file(SERVICE, SETTINGS_FILE),
                ],
                files=module_files(),
                secrets={SETTINGS_FILE: pulumi.Output.secret(known.apply(json.dumps))},
                ports=[Port(number=port, setting=PORT)],
                health=[HealthCheck(port=port, path="/health")],
                stop_seconds=STOP_SECONDS,
            ),
            # It ends before the store does: its last pass reads it.
            pulumi.ResourceOptions(parent=self, depends_on=list(storage.needs)),
        )


def module_files() -> dict[str, str]:
    """Return the files of a service that imports replicate.py, by their names."""
    root = Path(node.__file__).parents[1]
    names = ["trainyard/__init__.py", *(f"trainyard/store/{name}.py" for name in STORE)]
    store = {name: (root / name).read_text() for name in names}
    return {MODULE_FILE: node.source_text(MODULE_FILE), **store}


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


DESCRIPTOR = Descriptor(
    program="python",
    service=SERVICE,
    declare=partial(Replica, SERVICE),
    source=Source.MODULE,
    ports=(PortSetting(PORT, 8766, "Health of the second copy", published=False),),
    limit=Limit(memory_mib=1024, processes=256),
    settings={
        SETTING: (
            Annotated[Replicate | None, Only(("process",))],
            setting(
                None,
                "Second copy of all results while jobs run: `{to: /folder}` of the head's machine, "
                "or `{to: s3://<bucket>/<prefix>, endpoint, region, accessKey, secretKey}` "
                "(process)",
                see="results.md#a-second-copy-while-jobs-run",
            ),
        )
    },
    wanted=lambda settings: settings.of_services[SETTING] is not None,
)
