"""A drill: provokes a fault while a run trains, waits, and compares with a run without one."""

import contextlib
import time
from dataclasses import dataclass

from trainyard import json_values
from trainyard.client import history, jobs, repeat, scripts, submission
from trainyard.client.console import warn
from trainyard.client.dashboard import DashboardError
from trainyard.client.drill import Fault, faults, report
from trainyard.client.drill.report import DrillReport
from trainyard.client.drill.watch import POLL_S, RunWatch
from trainyard.client.errors import ClientError
from trainyard.client.history import RunRecord
from trainyard.client.job_server import Job, JobServer, Status
from trainyard.client.outputs import StackOutputs
from trainyard.client.state import ClusterState
from trainyard.client.store import open_store
from trainyard.json_values import number
from trainyard.store.objects import Store
from trainyard.tracking import run_folder

RECOVERY_S = 600  # for a head and its nodes to be back
UNDISTURBED = "-undisturbed"
NAME_LENGTH = 63
EPOCHS_LEFT = 2


@dataclass(frozen=True, kw_only=True)
class Drill:
    """A fault for a run."""

    fault: Fault  # the kind of fault
    whole_node: bool  # with worker-loss, the worker's node is lost too
    seconds: float  # length of the store's outage, or with preempt of the notice
    script: scripts.Script | None  # the run's, as the user named it; None for a job of this package


@dataclass(frozen=True, kw_only=True)
class DrilledStack:
    """A stack, and what answers for it."""

    outputs: StackOutputs
    server: JobServer
    state: ClusterState
    store: Store


@dataclass(frozen=True, kw_only=True)
class Before:
    """A run at its fault: its workers' ids, its restores so far, and its epochs."""

    workers: frozenset[str]
    restores: int
    stored: int
    trained: float


def check(drill: Drill, run: str, server: JobServer, outputs: StackOutputs) -> Job:
    """Finds the job that trains a run, or will train it, and refuses an impossible drill.

    Raises:
        ClientError: saying why.
    """
    if outputs.attached:
        raise ClientError(
            f"cluster {outputs.stack!r} is attached, and nothing there starts what a drill ends: "
            "drill a stack"
        )
    faults.check(drill.fault, outputs)
    job = jobs.resolve(server, run)
    if job.status.ended or not job.run:
        raise ClientError(
            f"no job trains run {run!r} now ({job.submission_id} is {job.status}): start one with "
            f"`train submit ... --name {run} --no-wait`, then drill while it trains"
        )
    try:
        run_folder.check_name(job.run)
    except ValueError as error:
        raise ClientError(f"job {job.submission_id}: {error}") from None
    repeat.request(job, {}, run, drill.script)  # refused now, not after the fault
    return job


def carry_out(drill: Drill, job: Job, server: JobServer, outputs: StackOutputs) -> DrillReport:
    """Carries the drill out: waits for the run's end, and trains an undisturbed run if none exists.

    Raises:
        ClientError: the fault could not be provoked, or the stack or the run did not come back.
    """
    stack = DrilledStack(
        outputs=outputs, server=server, state=ClusterState(outputs), store=open_store(outputs)
    )
    run = job.run
    watch = RunWatch(server, stack.state, stack.store, run, job)
    warn(f"run {run}: waiting until it trains and has stored an epoch ...")
    watch.until("its start", lambda: watch.job.status == Status.RUNNING)
    nodes = len(stack.state.nodes())
    entrypoint = next(
        (a.bundle for a in stack.state.actors() if a.submission == job.submission_id), {}
    )
    again = repeat.request(job, entrypoint, run, drill.script)
    _reach_an_epoch(watch, stack.store)

    restores, workers = len(watch.restored), frozenset(watch.workers)
    attempt = watch.job.metadata.get(jobs.ATTEMPT)
    struck = _strike(drill, watch, stack)
    warn(struck.what)
    if drill.fault is not Fault.HEAD_LOSS:
        watch.look()
    part = watch.part_of_an_epoch(struck.at)
    detected = None
    if drill.fault is Fault.HEAD_LOSS:
        detected = watch.until("the head's end", lambda: not watch.answers, RECOVERY_S)
        _wait_for_nodes(stack.state, nodes)
        how = "waits for the queue" if outputs.queue else "is submitted again"
        warn(f"the head and its {nodes} nodes are back; run {run} {how}")
        watch.look()  # its workers trained until their nodes gave up the head
        restores, workers = 0, frozenset()
    before = Before(
        workers=workers,
        restores=restores,
        stored=len(watch.records),
        trained=watch.trained + part,
    )
    if drill.fault is Fault.HEAD_LOSS:
        watch.follow(_again(again, attempt, watch, stack))
    same = drill.fault is Fault.STORE_LOSS
    detected, resumed = _next_epoch(watch, before, detected, same_workers=same)
    restored = watch.restored[before.restores :]
    warn(f"run {run} goes on{f' from {restored[0][0]}' if restored else ''}")
    _to_the_end(watch)
    if drill.fault is Fault.PREEMPT:  # it may still come, and must not hit the other run
        time.sleep(max(0.0, struck.at + drill.seconds - time.time()))
        _wait_for_nodes(stack.state, nodes)

    twin = _twin(history.read_run(stack.store, run), stack.store)
    beside = watch
    if len(twin.metrics) < len(watch.records):
        warn(f"run {twin.name}: the same without a fault, to compare with ...")
        request = repeat.request(job, entrypoint, twin.name, drill.script)
        beside = RunWatch(server, stack.state, stack.store, twin.name, _submit(request, stack))
        _to_the_end(beside)
    mine, theirs = (history.read_run(stack.store, name).metrics for name in (run, twin.name))
    lost = _lost(drill, watch, before)
    steps = watch.steps_an_epoch or beside.steps_an_epoch
    status = str(watch.job.status)
    return DrillReport(
        fault=str(drill.fault),
        what=struck.what,
        run=run,
        undisturbed=twin.name,
        status=status,
        detected_s=None if detected is None else max(0.0, detected - struck.at),
        resumed_s=max(0.0, resumed - struck.at),
        restored=restored[0][0] if restored else "",
        lost_epochs=lost,
        lost_steps=None if steps is None else round(lost * steps),
        epochs=(len(mine), len(theirs)),
        metrics=report.final_metrics(mine, theirs),
        faults=report.differences(status, mine, theirs),
    )


def _reach_an_epoch(watch: RunWatch, store: Store) -> None:
    """Waits until an epoch is stored, so that the run can resume."""
    watch.until("its first epoch", lambda: watch.records and watch.workers)
    asked = int(number(history.read_run(store, watch.run).config.get("epochs")) or 0)
    if asked and asked - len(watch.records) < EPOCHS_LEFT:
        raise ClientError(
            f"run {watch.run!r} has {len(watch.records)} of {asked} epochs and may end before the "
            f"fault: drill while at least {EPOCHS_LEFT} are left; ask for more epochs"
        )


def _strike(drill: Drill, watch: RunWatch, stack: DrilledStack) -> faults.InjectedFault:
    if drill.fault is Fault.WORKER_LOSS:
        return faults.lose_worker(stack.outputs, stack.state, watch, whole_node=drill.whole_node)
    if drill.fault is Fault.STORE_LOSS:
        warn(f"the object store does not answer for {drill.seconds:g} s ...")
        return faults.lose_store(stack.outputs, drill.seconds, lambda: watch.look(store=False))
    if drill.fault is Fault.PREEMPT:
        warn(f"a node of the run has notice of {drill.seconds:g} s ...")
        return faults.preempt(stack.outputs, stack.state, watch, drill.seconds)
    return faults.lose_head(stack.outputs)


def _lost(drill: Drill, watch: RunWatch, before: Before) -> float:
    """Epochs that were trained before the fault and again after it.

    After a notice a run trains until it leaves: these epochs count.
    """
    restored = watch.restored[before.restores :]
    if not restored:
        return 0.0
    trained = before.trained
    if drill.fault is Fault.PREEMPT:
        trained = max(trained, watch.reached[before.restores])
    return max(0.0, trained - restored[0][1])


def _next_epoch(
    watch: RunWatch, before: Before, detected: float | None, *, same_workers: bool
) -> tuple[float | None, float]:
    """Waits for the first epoch that was not stored before.

    Args:
        watch: of the run.
        before: its state at the fault.
        detected: when Ray or the stack acted on the fault, if known.
        same_workers: whether the workers at the fault may go on; if not, epochs that they store
            while they end do not count.

    Returns:
        The time when somebody acted on the fault (Ray Train asked for other workers), None when the
        same workers went on; and the time when that epoch was stored.
    """
    seen = [] if detected is None else [detected]
    stored = before.stored

    def check() -> bool:
        nonlocal stored
        if not seen and set(watch.workers) - before.workers:
            seen.append(time.time())
            stored = max(stored, len(watch.records))
        return bool(seen or same_workers) and len(watch.records) > stored

    resumed = watch.until("its next epoch", check)
    return (seen[0] if seen else None), resumed


def _to_the_end(watch: RunWatch) -> None:
    watch.until("its end", lambda: watch.answers and watch.job.status.ended)


def _wait_for_nodes(state: ClusterState, count: int) -> None:
    end = time.monotonic() + RECOVERY_S
    while time.monotonic() < end:
        with contextlib.suppress(DashboardError):
            if len(state.nodes()) >= count:
                return
        time.sleep(POLL_S)
    raise ClientError(
        f"the stack's {count} nodes have not come back within {RECOVERY_S} s: run `make up`, "
        "then submit the run again to go on with it"
    )


def _submit(request: submission.Request, stack: DrilledStack) -> Job:
    server, job_id = submission.submit(request, stack.outputs, force=True)
    return server.job(job_id)


def _again(
    request: submission.Request, attempt: str | None, watch: RunWatch, stack: DrilledStack
) -> Job:
    """Return the job that goes on: the same where a queue starts it again, else another one."""
    if stack.outputs.queue:
        watch.until(
            "its next start by the queue",
            lambda: watch.job.status.ended or watch.job.metadata.get(jobs.ATTEMPT) != attempt,
            RECOVERY_S,
        )
        if not watch.job.status.ended:
            return watch.job
    return _submit(request, stack)


def _twin(mine: RunRecord, store: Store) -> RunRecord:
    """Return the undisturbed run of the same configuration and commit: an existing or a new one.

    A new one has only the configuration: omitted arguments of a job are those of its run's last
    start.
    """
    names = store.folders()
    for name in names:
        skip = UNDISTURBED not in name or name == mine.name
        run = None if skip else history.tried(store, name)[0]
        if run and run.config == mine.config and _commit(run) in ("", _commit(mine)):
            return run
    base = mine.name[: NAME_LENGTH - len(UNDISTURBED) - 3] + UNDISTURBED
    name = next(n for n in (base, *(f"{base}-{i}" for i in range(2, 99))) if n not in names)
    store.delete(f"{run_folder.SUMMARIES}/{name}")  # of a run that is gone
    store.write(f"{name}/{run_folder.CONFIG}", json_values.text(mine.config, indent=2).encode())
    return RunRecord(name, mine.config, [], [], None)


def _commit(run: RunRecord) -> str:
    return str(run.starts[-1].get("commit", "")) if run.starts else ""
