"""The resource monitor and engine that the SDK talks to.

The SDK takes any object as its monitor, so this needs no server or second protocol: the program
runs in this process, and its registrations arrive here on threads of the SDK's executor.
"""

import threading
from typing import Any, NoReturn

from google.protobuf import empty_pb2
from pulumi.runtime.proto import engine_pb2, resource_pb2

from engine import reference
from engine.context import Context
from engine.errors import EngineError, UnsupportedError
from engine.goal import goal_of
from engine.state import STACK_TYPE
from engine.steps import StoppedError, reconcile
from engine.structs import from_struct, to_struct


class Monitor:
    """Answers the calls of one program's SDK."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._urns: set[str] = set()  # registered so far

    def GetDeploymentInfo(self, _: empty_pb2.Empty) -> resource_pb2.DeploymentInfo:  # noqa: N802
        """Features that the SDK may use; without SECRETS it would send secrets in the clear."""
        return resource_pb2.DeploymentInfo(
            supportedFeatures=[
                resource_pb2.RESOURCE_MONITOR_FEATURE_SECRETS,
                resource_pb2.RESOURCE_MONITOR_FEATURE_DELETED_WITH,
            ]
        )

    def RegisterResource(  # noqa: N802
        self, request: resource_pb2.RegisterResourceRequest
    ) -> resource_pb2.RegisterResourceResponse:
        """Create or change one resource as the program declares it.

        A failure is answered, not raised: the SDK then resolves the outputs as unknown, and the
        program ends without a traceback.
        """
        try:
            if self._context.stopping.is_set():
                raise StoppedError
            context = self._context
            goal = goal_of(request, project=context.project.name, stack=context.stack)
            with self._lock:
                if goal.urn in self._urns:
                    raise EngineError(f"{goal.urn} is registered twice; give one another name")
                self._urns.add(goal.urn)
            entry, outputs = reconcile(context, goal)
        except StoppedError:
            return resource_pb2.RegisterResourceResponse(result=resource_pb2.FAIL)
        except Exception as error:
            self._context.fail(f"{request.type} {request.name}", error)
            return resource_pb2.RegisterResourceResponse(result=resource_pb2.FAIL)
        return resource_pb2.RegisterResourceResponse(
            urn=goal.urn, id=entry.get("id", ""), object=to_struct(outputs)
        )

    def RegisterResourceOutputs(  # noqa: N802
        self, request: resource_pb2.RegisterResourceOutputsRequest
    ) -> empty_pb2.Empty:
        """Outputs of a component or of the stack."""
        journal = self._context.journal
        entry = journal.new(request.urn)
        if entry is not None and not self._context.stopping.is_set():
            outputs = from_struct(request.outputs)
            if entry["type"] == STACK_TYPE:
                self._context.display.outputs(entry.get("outputs", {}), outputs)
            journal.mark(entry, outputs=outputs)
        return empty_pb2.Empty()

    def SignalAndWaitForShutdown(self, _: empty_pb2.Empty) -> empty_pb2.Empty:  # noqa: N802
        """The program is done; the engine needs nothing more of it."""
        return empty_pb2.Empty()

    def Invoke(self, request: Any) -> NoReturn:  # noqa: N802
        """Refused: functions of providers, lookups of resources, methods of remote components."""
        what = getattr(request, "tok", "") or f"{request.type} {request.name}"
        raise UnsupportedError(f"the call of {what}")

    Call = Invoke

    def ReadResource(  # noqa: N802
        self, request: resource_pb2.ReadResourceRequest
    ) -> resource_pb2.ReadResourceResponse:
        """A reference to another stack; other lookups are refused."""
        return reference.read_outputs(self._context, request)

    def Log(self, request: engine_pb2.LogRequest) -> empty_pb2.Empty:  # noqa: N802
        """A message of the program or of a provider."""
        level = engine_pb2.LogSeverity.Name(request.severity).lower()
        self._context.display.message(level, request.message, request.urn)
        return empty_pb2.Empty()
