"""The page of `train ui` as a service, for those who only look: it starts no commands.

It runs in the notebook's image, which has the client, or as `train` of the checkout, of which
machines reached by SSH get a copy. It knows the cluster by the notebook's file. Who has its
password sees all jobs with their logs, runs and nodes, but no other secret.
"""

from functools import partial

import pulumi

from cluster import notebook
from cluster.descriptor import Component, Descriptor, Endpoint, Limit, PortSetting, Source, Stack
from cluster.inputs import join
from cluster.model import setting
from cluster.secret import PASSWORD_BYTES, Secret
from cluster.service import HealthCheck, Port, Service

SERVICE = "page"
PORT = "pagePort"
USER = "viewer"
PASSWORD_FILE = "page-password"  # noqa: S105 (a file's name)


class Page(Component):
    """The page."""

    def declare(self, stack: Stack) -> None:
        runtime, port = stack.runtime, stack.port(PORT)
        drawn = Secret(f"{self.name}-password", PASSWORD_BYTES, self.child)
        self.password = pulumi.Output.secret(drawn.value)
        runtime.place(
            Service(
                name=SERVICE,
                program=notebook.SERVICE,
                arguments=[
                    # `jupyter page` starts jupyter-page, which is train.sh by another name; as a
                    # process it is `train page`.
                    SERVICE,
                    join("--host=", runtime.listen_address(SERVICE)),
                    f"--port={port}",
                    f"--user={USER}",
                    f"--password-file={runtime.file(SERVICE, PASSWORD_FILE)}",
                ],
                environment={"TRAINYARD_OUTPUTS": runtime.file(SERVICE, notebook.OUTPUTS_FILE)},
                secrets={
                    PASSWORD_FILE: self.password,
                    notebook.OUTPUTS_FILE: notebook.outputs_file(stack),
                },
                ports=[Port(number=port, setting=PORT, published=True)],
                health=[HealthCheck(port=port, path="/health")],
            ),
            self.child,
        )
        self.export(stack, ENDPOINT, runtime.public(SERVICE, port))


ENDPOINT = Endpoint(title="read-only page", url="pageUrl", login="pagePassword", user=USER)
DESCRIPTOR = Descriptor(
    program=notebook.SERVICE,
    service=SERVICE,
    declare=partial(Page, SERVICE),
    source=Source.CHECKOUT,
    commands=("train",),
    ports=(PortSetting(PORT, 8269, "Read-only page"),),
    limit=Limit(memory_mib=1024, processes=512),
    settings={
        "page": (
            bool,
            setting(
                False,
                "Whether the page of `train ui` runs, read-only",
                see="ui.md#a-read-only-page-for-others",
            ),
        )
    },
    wanted=lambda settings: bool(settings.of_services["page"]),
    endpoints=(ENDPOINT,),
)
