"""Dynamic resources in Pulumi's own host of them, a process of its own."""

import json
import signal
import subprocess
from typing import Any

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

from engine.errors import EngineError
from engine.project import Project
from engine.providers import WORK, Diff, Live
from engine.structs import from_struct, to_struct
from engine.values import Properties, secret
from tests.fakes.pulumi_cli.processes import Say, options_of, pass_on, start

END_SECONDS = 5
MESSAGE_BYTES = 400 << 20


class Host:
    """One `pulumi.dynamic` process, as a provider of the engine, but without `find`.

    Args:
        project: the project.
        config: the stack's config, secrets in the clear.
        secret_keys: the keys whose values are secrets.
        engine: address of the engine, which the host is told.
        say: shows what the host prints.

    Raises:
        EngineError: it did not start.
    """

    def __init__(
        self,
        project: Project,
        config: dict[str, str],
        secret_keys: list[str],
        engine: str,
        say: Say,
    ) -> None:
        options, folder = options_of(project), project.main.resolve()
        self._process = start(
            project,
            folder,
            ["-u", "-m", "pulumi.dynamic", engine],
            {
                **{f"PULUMI_RUNTIME_{key.upper()}": value for key, value in options.items()},
                "PULUMI_PROJECT": project.name,
                "PULUMI_CONFIG": json.dumps(config),
            },
            cwd=folder,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._channel: grpc.Channel | None = None
        self._readers = [pass_on(self._process.stderr, say)]
        port = self._process.stdout.readline().strip()
        if not port:
            self.close()
            raise EngineError("the host of dynamic providers did not start")
        self._readers.append(pass_on(self._process.stdout, say))
        self._channel = grpc.insecure_channel(
            f"127.0.0.1:{port}", options=[("grpc.max_receive_message_length", MESSAGE_BYTES)]
        )
        self._stub = provider_pb2_grpc.ResourceProviderStub(self._channel)
        arguments = {key: secret(v) if key in secret_keys else v for key, v in config.items()}
        self._call(
            self._stub.Configure,
            provider_pb2.ConfigureRequest(args=to_struct(arguments), acceptSecrets=True),
        )

    def check(self, olds: Properties, news: Properties) -> tuple[Properties, list[str]]:
        request = provider_pb2.CheckRequest(olds=to_struct(olds), news=to_struct(news))
        answer = self._call(self._stub.Check, request)
        faults = [f"{fault.property}: {fault.reason}" for fault in answer.failures]
        return from_struct(answer.inputs), faults

    def diff(self, id_: str, olds: Properties, news: Properties) -> Diff:
        request = provider_pb2.DiffRequest(id=id_, olds=to_struct(olds), news=to_struct(news))
        answer = self._call(self._stub.Diff, request)
        known = {
            provider_pb2.DiffResponse.DIFF_NONE: False,
            provider_pb2.DiffResponse.DIFF_SOME: True,
        }
        return Diff(
            changes=known.get(answer.changes),
            replaces=list(answer.replaces),
            delete_before_replace=answer.deleteBeforeReplace,
        )

    def create(self, news: Properties) -> Live:
        request = provider_pb2.CreateRequest(
            urn=WORK.get().urn, properties=to_struct(news), timeout=WORK.get().seconds
        )
        answer = self._call(self._stub.Create, request)
        return Live(id=answer.id, outputs=from_struct(answer.properties))

    def read(self, id_: str, olds: Properties) -> Live | None:
        request = provider_pb2.ReadRequest(id=id_, properties=to_struct(olds))
        answer = self._call(self._stub.Read, request)
        if not answer.id:
            return None
        inputs = from_struct(answer.inputs) if answer.HasField("inputs") else None
        return Live(id=answer.id, outputs=from_struct(answer.properties), inputs=inputs)

    def update(self, id_: str, olds: Properties, news: Properties) -> Properties:
        request = provider_pb2.UpdateRequest(
            id=id_,
            urn=WORK.get().urn,
            olds=to_struct(olds),
            news=to_struct(news),
            timeout=WORK.get().seconds,
        )
        outputs: Properties = from_struct(self._call(self._stub.Update, request).properties)
        return outputs

    def delete(self, id_: str, olds: Properties) -> None:
        request = provider_pb2.DeleteRequest(
            id=id_,
            urn=WORK.get().urn,
            properties=to_struct(olds),
            timeout=WORK.get().seconds,
        )
        self._call(self._stub.Delete, request)

    def cancel(self) -> None:
        """Send Cancel, as the CLI does on the first Ctrl-C."""
        self._call(self._stub.Cancel, empty_pb2.Empty())

    def close(self) -> None:
        """End the process."""
        if self._channel is not None:
            self._channel.close()
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for reader in self._readers:
            reader.join()

    def _call(self, method: Any, request: Any) -> Any:
        try:
            return method(request)
        except grpc.RpcError as error:
            # What the CLI prints below the resource's name.
            raise EngineError(error.details()) from None
