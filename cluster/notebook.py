"""A Jupyter server without a GPU: where a user writes jobs and submits them to the cluster."""

import importlib.metadata
from dataclasses import replace
from functools import partial

import pulumi

from cluster import job_queue, monitoring, ray_node
from cluster.descriptor import Component, Descriptor, Endpoint, Limit, PortSetting, Source, Stack
from cluster.inputs import join
from cluster.model import setting
from cluster.ray_node import TOKEN_FILE
from cluster.secret import Secret
from cluster.service import HealthCheck, Port, Service, Volume
from trainyard.access import outputs

SERVICE = "jupyter"
PORT = "notebookPort"
WORKSPACE = Volume(name="workspace", keep=True)
OUTPUTS_FILE = "outputs.json"
JUPYTER_TOKEN_FILE = "jupyter-token"  # noqa: S105 (a file's name)
TOKEN_BYTES = 24


class Notebook(Component):
    """The notebook."""

    def declare(self, stack: Stack) -> None:
        runtime, port = stack.runtime, stack.port(PORT)
        token = Secret(f"{self.name}-token", TOKEN_BYTES, self.child)
        dashboard = job_queue.jobs_address(stack)
        runtime.place(
            Service(
                name=SERVICE,
                program="jupyter",
                arguments=[
                    "lab",
                    join("--ip=", runtime.listen_address(SERVICE)),
                    f"--port={port}",
                ],
                environment={
                    # The same twice: course material reads the first, Ray 2.60 prefers the second.
                    "RAY_ADDRESS": join("http://", dashboard),
                    "RAY_API_SERVER_ADDRESS": join("http://", dashboard),
                    "RAY_AUTH_MODE": "token",
                    "RAY_AUTH_TOKEN_PATH": runtime.file(SERVICE, TOKEN_FILE),
                },
                secrets={
                    TOKEN_FILE: pulumi.Output.secret(stack.token),
                    JUPYTER_TOKEN_FILE: token.value,
                    OUTPUTS_FILE: outputs_file(stack),
                },
                volumes=[WORKSPACE, *stack.volumes],
                ports=[Port(number=port, setting=PORT, published=True)],
                health=[HealthCheck(port=port, path="/api")],
            ),
            self.child,
        )
        stack.notebook = {
            "url": join("http://", runtime.address(SERVICE, port)),
            "token": token.value,
        }
        self.export(
            stack, ENDPOINT, join(runtime.public(SERVICE, port), "/lab?token=", token.value)
        )


def outputs_file(stack: Stack) -> pulumi.Output[str]:
    """Return the file by which `train` in a service finds the cluster and its results.

    Addresses are those for services. It knows no served models, and of the other services only
    Prometheus.
    """
    storage, monitor = stack.storage, replace(monitoring.ENDPOINT, login="", user="")
    dashboard = job_queue.jobs_address(stack)
    found: dict[str, pulumi.Input[object]] = {
        **outputs.NOTHING,
        outputs.PROJECT: pulumi.get_project(),
        outputs.STACK: pulumi.get_stack(),
        outputs.DASHBOARD_URL: join("http://", dashboard),
        outputs.RAY_TOKEN: stack.token,
        outputs.STORAGE_URL: storage.url,
        outputs.OBJECT_STORE_ENDPOINT: join("http://", storage.internal) if storage.bucket else "",
        outputs.BUCKET: storage.bucket,
        outputs.ACCESS_KEY: storage.access_key,
        outputs.SECRET_KEY: storage.secret_key,
        outputs.RAY_VERSION: importlib.metadata.version("ray"),
        outputs.PYTHON_VERSION: stack.python,
        outputs.NODES: stack.outputs[outputs.NODES],
        outputs.RESERVED_FROM: stack.reserved_from,
        outputs.EXPIRES_AT: stack.expires_at,
        outputs.JOB_START_TIMEOUT_SECONDS: stack.settings.of_services[ray_node.JOB_START],
    }
    if stack.prometheus is not None:
        found |= {outputs.SERVICES: [monitor.entry], monitor.url: stack.prometheus}
    return pulumi.Output.secret(pulumi.Output.json_dumps(found))


ENDPOINT = Endpoint(title="notebook", url="notebookUrl", secret=True)
DESCRIPTOR = Descriptor(
    program=SERVICE,
    declare=partial(Notebook, "notebook"),
    source=Source.ADDED,
    commands=("jupyter-lab",),
    ports=(PortSetting(PORT, 8888, "Jupyter"),),
    limit=Limit(memory_mib=8192, processes=4096),
    settings={
        "notebook": (
            bool,
            setting(False, "Whether a Jupyter notebook runs", see="train.md#a-notebook"),
        )
    },
    wanted=lambda settings: bool(settings.of_services["notebook"]),
    endpoints=(ENDPOINT,),
)
