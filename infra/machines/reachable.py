"""A new machine, once a login works and its first boot is done."""

# ruff: noqa: N815 (property names are camelCase in Pulumi states)

import time
from collections.abc import Callable
from typing import Any, TypeVar

import pulumi
from pulumi import dynamic

from cluster.provider import Given, Resource, say
from infra.machines import cloud_init, probe
from infra.machines import host_provider as presence
from infra.machines.host_provider import HostArgs, HostProvider
from infra.service.cancellation import WaitingProvider
from trainyard.access.ssh import Connection, LoginRefusedError, SshError, UnreachableError
from trainyard.access.ssh_run import CommandError, run

POLL_SECONDS = 1.0
SAY_SECONDS = 30.0
# cloud-init's status is 2 where something of the image's own failed; our own log tells whether our
# steps succeeded, and if not, why.
FINISHED = f"""\
command -v cloud-init > /dev/null || exit 0
cloud-init status --wait > /dev/null
status=$?
case $status in
0 | 2) grep -qx '{cloud_init.FINISHED}' {cloud_init.LOG} && exit 0 ;;
esac
cloud-init status --long
tail -n 12 {cloud_init.LOG}
exit 1"""
DEADLINE_MARGIN = 1.0

T = TypeVar("T")


class _UnusableError(SshError):
    """A machine cannot be used, and waiting does not help."""


class ReachableArgs(HostArgs):
    """Address for other machines, and the time for its first boot."""

    address: Given[str]
    timeoutMinutes: float


class ReachableProvider(WaitingProvider[ReachableArgs], HostProvider[ReachableArgs]):
    """Waits, and notes the machine's resources. An unusable rented machine is ended."""

    replaces = ("machine",)  # at another address it is the same one

    def make(self, args: ReachableArgs) -> tuple[str, dict[str, Any]]:
        """Wait until a login works, then until the first boot is done; inspect the machine."""
        try:
            return args.machine, _await(args, self._cancellation.sleep)
        except _UnusableError as error:
            # Nothing is on it yet, and it is billed. At another address (update) it may hold data.
            raise SshError(f"{error}\n{self._end(args)}") from None

    def update(self, _id: str, _olds: dict[str, Any], news: dict[str, Any]) -> dynamic.UpdateResult:
        return dynamic.UpdateResult(
            {**news, **_await(self.takes.of(news), self._cancellation.sleep)}
        )

    def _end(self, args: ReachableArgs) -> str:
        """End an unusable machine; return a sentence on the outcome."""
        try:
            if presence.end(args.host, self._config):
                return "It is terminated: run up with --refresh to launch another one"
        except pulumi.RunError as error:
            return f"It keeps running, and is billed ({error}): end it with destroy"
        return "It keeps running: end it where it was started"


class Reachable(Resource[ReachableArgs], module="host", name="Reachable"):
    """A machine that is ready to be set up.

    Attributes:
        gpus: number that its driver lists.
        interface: network interface that others reach it by.
    """

    _kind = ReachableProvider
    cpus: pulumi.Output[int]
    memoryMib: pulumi.Output[int]
    gpus: pulumi.Output[int]
    interface: pulumi.Output[str]


def _await(args: ReachableArgs, sleep: Callable[[float], None]) -> dict[str, int | str]:
    connection = Connection.of(args.host)
    started = said = time.monotonic()
    deadline = started + args.timeoutMinutes * 60

    def patiently(call: Callable[[], T]) -> T:
        # The first boot makes users after it has started sshd, and may restart sshd. Waiting does
        # not help with other failures, and it is billed.
        nonlocal said
        while True:
            try:
                return call()
            except (UnreachableError, LoginRefusedError) as error:
                if time.monotonic() > deadline:
                    raise _UnusableError(
                        f"{args.machine} is on, but not usable within "
                        f"{args.timeoutMinutes:g} min: {error} Where a firewall keeps this "
                        "machine out, add the address that it comes from to allowedCidrs"
                    ) from None
            if time.monotonic() - said > SAY_SECONDS:
                said = time.monotonic()
                say(f"waiting for SSH of {connection.name}: {said - started:.0f} s")
            sleep(POLL_SECONDS)

    def finish() -> None:
        run(connection, FINISHED, seconds=max(DEADLINE_MARGIN, deadline - time.monotonic()))

    patiently(lambda: run(connection, "true", seconds=probe.PROBE_SECONDS))
    try:
        patiently(finish)
    except CommandError as error:
        raise _UnusableError(
            f"the first boot of {connection.name} ({args.machine}) failed: {error}"
        ) from None
    facts = patiently(lambda: probe.probe(connection))
    faults = probe.faults(facts, connection.name, gpus=None, makes_environment=True)
    if faults:
        raise SshError("; ".join(faults))
    return {
        "cpus": facts.cpus,
        "memoryMib": facts.memory_mib,
        "gpus": facts.gpus,
        "interface": facts.interface(args.address),
    }
