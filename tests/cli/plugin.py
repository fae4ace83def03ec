"""`pulumi-resource-docker ENGINE` and `-command`: the embedded engine's providers for the CLI.

Pulumi's own plugins are in no package registry. So tests prove the CLI's steps and state of these
resources, but not the plugins' work.
"""

import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import (
    engine_pb2,
    engine_pb2_grpc,
    plugin_pb2,
    provider_pb2,
    provider_pb2_grpc,
)

from engine.command.provider import CommandProvider
from engine.docker.provider import DockerProvider
from engine.errors import EngineError
from engine.providers import Say, TypeProvider, working
from engine.structs import from_struct, to_struct
from engine.values import Properties

PROVIDERS: dict[str, Callable[[str, Say, Properties], TypeProvider]] = {
    "docker": lambda type_, say, settings: DockerProvider(type_, say, lambda: settings),
    "command": lambda type_, say, _: CommandProvider(type_, say),
}
LEVELS = {
    "debug": engine_pb2.DEBUG,
    "info": engine_pb2.INFO,
    "warning": engine_pb2.WARNING,
    "error": engine_pb2.ERROR,
}
CALLS = 50
MESSAGE_BYTES = 400 << 20


def told(method: Any) -> Any:
    """Answer with the message of a provider's error."""

    def call(self: Any, request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return method(self, request, context)
        except EngineError as error:
            context.abort(grpc.StatusCode.UNKNOWN, str(error))

    return call


class Plugin(provider_pb2_grpc.ResourceProviderServicer):
    """The answered calls; gRPC reports all others as not implemented."""

    def __init__(self, package: str, engine: str) -> None:
        self._log = engine_pb2_grpc.EngineStub(grpc.insecure_channel(engine)).Log
        self._made: list[TypeProvider] = []
        self._settings: Properties = {}

        @cache
        def make(type_: str) -> TypeProvider:
            provider = PROVIDERS[package](type_, self._say, self._settings)
            self._made.append(provider)
            return provider

        self._provider = make

    def _say(self, level: str, text: str) -> None:
        self._log(engine_pb2.LogRequest(severity=LEVELS[level], message=text))

    def _of(self, request: Any) -> TypeProvider:
        return self._provider(request.urn.split("::")[2].rpartition("$")[2])

    def GetPluginInfo(self, _: empty_pb2.Empty, __: Any) -> plugin_pb2.PluginInfo:
        return plugin_pb2.PluginInfo(version="0.0.0")

    def CheckConfig(self, request: provider_pb2.CheckRequest, _: Any) -> provider_pb2.CheckResponse:
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, _: provider_pb2.DiffRequest, __: Any) -> provider_pb2.DiffResponse:
        return provider_pb2.DiffResponse(changes=provider_pb2.DiffResponse.DIFF_NONE)

    def Configure(
        self, request: provider_pb2.ConfigureRequest, _: Any
    ) -> provider_pb2.ConfigureResponse:
        """Take secrets in the clear: the CLI marks them again in answers."""
        self._settings = from_struct(request.args)
        return provider_pb2.ConfigureResponse()

    @told
    def Check(self, request: provider_pb2.CheckRequest, _: Any) -> provider_pb2.CheckResponse:
        olds, news = from_struct(request.olds), from_struct(request.news)
        inputs, faults = self._of(request).check(olds, news)
        failures = [provider_pb2.CheckFailure(reason=fault) for fault in faults]
        return provider_pb2.CheckResponse(inputs=to_struct(inputs), failures=failures)

    @told
    def Diff(self, request: provider_pb2.DiffRequest, _: Any) -> provider_pb2.DiffResponse:
        olds, news = from_struct(request.olds), from_struct(request.news)
        diff = self._of(request).diff(request.id, olds, news)
        changes = {
            None: provider_pb2.DiffResponse.DIFF_UNKNOWN,
            False: provider_pb2.DiffResponse.DIFF_NONE,
            True: provider_pb2.DiffResponse.DIFF_SOME,
        }
        return provider_pb2.DiffResponse(
            changes=changes[diff.changes],
            replaces=diff.replaces,
            deleteBeforeReplace=diff.delete_before_replace,
        )

    @told
    def Create(self, request: provider_pb2.CreateRequest, _: Any) -> provider_pb2.CreateResponse:
        with _working(request, "create"):
            live = self._of(request).create(from_struct(request.properties))
        return provider_pb2.CreateResponse(id=live.id, properties=to_struct(live.outputs))

    @told
    def Read(self, request: provider_pb2.ReadRequest, _: Any) -> provider_pb2.ReadResponse:
        live = self._of(request).read(request.id, from_struct(request.properties))
        if live is None:
            return provider_pb2.ReadResponse()
        inputs = request.inputs if live.inputs is None else to_struct(live.inputs)
        return provider_pb2.ReadResponse(
            id=live.id, properties=to_struct(live.outputs), inputs=inputs
        )

    @told
    def Update(self, request: provider_pb2.UpdateRequest, _: Any) -> provider_pb2.UpdateResponse:
        olds, news = from_struct(request.olds), from_struct(request.news)
        with _working(request, "update"):
            outputs = self._of(request).update(request.id, olds, news)
        return provider_pb2.UpdateResponse(properties=to_struct(outputs))

    @told
    def Delete(self, request: provider_pb2.DeleteRequest, _: Any) -> empty_pb2.Empty:
        with _working(request, "delete"):
            self._of(request).delete(request.id, from_struct(request.properties))
        return empty_pb2.Empty()

    def Cancel(self, _: empty_pb2.Empty, __: Any) -> empty_pb2.Empty:
        for provider in self._made:
            if (cancel := getattr(provider, "cancel", None)) is not None:
                cancel()
        return empty_pb2.Empty()


def _working(request: Any, kind: str) -> Any:
    return working({"urn": request.urn, "customTimeouts": {kind: request.timeout}}, kind)


def main() -> None:
    """Serve until the CLI ends this."""
    _, package, *_, engine = sys.argv
    with ThreadPoolExecutor(CALLS) as pool:
        options = [("grpc.max_receive_message_length", MESSAGE_BYTES)]
        server = grpc.server(pool, options=options)
        provider_pb2_grpc.add_ResourceProviderServicer_to_server(Plugin(package, engine), server)
        sys.stdout.write(f"{server.add_insecure_port('127.0.0.1:0')}\n")
        sys.stdout.flush()
        server.start()
        ended = threading.Event()
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, lambda *_: ended.set())
        ended.wait()
        server.stop(None)


if __name__ == "__main__":
    main()
