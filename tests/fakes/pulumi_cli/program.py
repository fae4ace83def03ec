"""Runs the program as the CLI's language host does, and answers its calls over gRPC."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import (
    engine_pb2,
    engine_pb2_grpc,
    resource_pb2,
    resource_pb2_grpc,
)

from engine.context import PARALLEL, Context
from engine.errors import EngineError
from engine.monitor import Monitor
from engine.project import Settings
from tests.fakes.pulumi_cli.processes import pass_on, start

EXECUTE = Path(__file__).parent / "exec" / "execute.py"
CALLS = 200  # registrations that may wait at a time, each in a thread
MESSAGE_BYTES = 400 << 20


def run_program(context: Context, settings: Settings) -> None:
    """Run the program to its end; a fault in it becomes a failure of the operation."""
    project = context.project
    # What the CLI has as plugins works in the program's folder: build contexts are relative to it.
    with chdir(project.main), serving(context) as address:
        arguments = {
            "monitor": address,
            "engine": address,
            "project": project.name,
            "root_directory": str(project.root),
            "stack": context.stack,
            "pwd": str(project.main.resolve()),
            "dry_run": str(context.dry_run).lower(),
            "parallel": str(PARALLEL),
            "organization": "organization",
        }
        words = [word for key, value in arguments.items() for word in (f"--{key}", value)]
        # Pulumi.yaml names it relative to the project, while the host of providers takes it
        # relative to the program.
        process = start(
            project,
            project.root,
            [str(EXECUTE), *words, "."],
            {
                "PULUMI_CONFIG": json.dumps(settings.config),
                "PULUMI_CONFIG_SECRET_KEYS": json.dumps(settings.secret_keys),
            },
            cwd=project.root,
        )
        with process:
            readers = [
                pass_on(stream, lambda line: context.display.message("info", line, ""))
                for stream in (process.stdout, process.stderr)
                if stream is not None
            ]
            for reader in readers:
                reader.join()
            code = process.wait()
    if code:
        context.fail("program", EngineError(f"program exited with non-zero exit code: {code}"))


@contextmanager
def serving(context: Context) -> Iterator[str]:
    """Serve monitor and engine on loopback while the body runs; yields their address."""
    monitor = Monitor(context)
    with ThreadPoolExecutor(CALLS) as pool:
        server = grpc.server(pool, options=[("grpc.max_receive_message_length", MESSAGE_BYTES)])
        resource_pb2_grpc.add_ResourceMonitorServicer_to_server(_MonitorService(monitor), server)
        engine_pb2_grpc.add_EngineServicer_to_server(_EngineService(monitor), server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.stop(None).wait()


class _MonitorService(resource_pb2_grpc.ResourceMonitorServicer):
    """What is not answered here is not implemented, and gRPC says so."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor

    def GetDeploymentInfo(self, request: empty_pb2.Empty, _: Any) -> resource_pb2.DeploymentInfo:
        return self._monitor.GetDeploymentInfo(request)

    def RegisterResource(
        self, request: resource_pb2.RegisterResourceRequest, _: Any
    ) -> resource_pb2.RegisterResourceResponse:
        return self._monitor.RegisterResource(request)

    def ReadResource(
        self, request: resource_pb2.ReadResourceRequest, context: Any
    ) -> resource_pb2.ReadResourceResponse:
        try:
            return self._monitor.ReadResource(request)
        except EngineError as error:
            context.abort(grpc.StatusCode.UNKNOWN, str(error))
            raise

    def RegisterResourceOutputs(
        self, request: resource_pb2.RegisterResourceOutputsRequest, _: Any
    ) -> empty_pb2.Empty:
        return self._monitor.RegisterResourceOutputs(request)

    def SignalAndWaitForShutdown(self, request: empty_pb2.Empty, _: Any) -> empty_pb2.Empty:
        return self._monitor.SignalAndWaitForShutdown(request)


class _EngineService(engine_pb2_grpc.EngineServicer):
    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor

    def Log(self, request: engine_pb2.LogRequest, _: Any) -> empty_pb2.Empty:
        return self._monitor.Log(request)
