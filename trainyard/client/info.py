"""The addresses of a stack and the next commands, which `make demo` shows at its end."""

import shlex
import subprocess
from datetime import UTC, datetime, timedelta

from trainyard.access import typed
from trainyard.access.outputs import DASHBOARD_URL, IDLE_END_URL, SERVE_URL, TRACKING_URL
from trainyard.client.outputs import UNKNOWN_MIB, InCluster, Service, StackOutputs

SOON = timedelta(hours=1)
MONITORING = "Prometheus"  # its absence is shown; that of other services is not
NOTES = {SERVE_URL: " (train serve RUN)"}
PAGES = {TRACKING_URL: "/#/experiments"}  # MLflow's first page is about MLflow


def addresses(
    outputs: StackOutputs, disk: str = "", idle: str = "", cost: str = ""
) -> list[tuple[str, str]]:
    """Return the parts of the stack with their addresses, without the missing parts.

    `disk` is the free room of its nodes, `idle` when idle machines end, and `cost` this month's.
    """
    nodes = "; ".join(
        f"{node.name}{f' ({node.group})' if node.group else ''} {node.cpus:g} CPU "
        f"{node.gpus:g} GPU"
        + (f" {node.memory_mib / 1024:.1f} GiB" if node.memory_mib < UNKNOWN_MIB else "")
        + "".join(f" {amount:g} {name}" for name, amount in node.resources.items())
        + (" on demand" if node.on_demand else "")
        + (f" ({node.hourly_cost:.2f} $/h)" if node.hourly_cost else "")
        for node in outputs.nodes
    )
    rows = [
        ("stack", f"{outputs.stack} (Ray {outputs.ray_version}, Python {outputs.python_version})"),
        ("nodes", nodes),
        ("disk", disk),
        ("cost this month", cost),
        ("runs on", f"{away}: the addresses below are there" if (away := outputs.away) else ""),
        ("to have them here", typed.command(f"train tunnel -s {outputs.stack}") if away else ""),
        ("head's pod", _head_pod(outputs.cluster) if outputs.cluster else ""),
        ("owner", outputs.owner),
        ("names begin with", outputs.container_prefix),
        ("reserved from", f"{_at(outputs.reserved_from)}" if outputs.reserved_from else ""),
        ("ends itself", _ending(outputs.expires_at) if outputs.expires_at else ""),
        ("ends when idle", idle),
        ("results", outputs.storage_url),
        ("volumes", outputs.volumes),
        *(
            row
            for service in outputs.services
            if service.output != IDLE_END_URL
            for row in _service(service, outputs)
        ),
    ]
    return [row for row in rows if row[1]]


def facts(outputs: StackOutputs) -> dict[str, object]:
    """Return names and addresses for scripts, without tokens; see `addresses` for the rest."""
    return {
        "stack": outputs.stack,
        "owner": outputs.owner,
        "containerPrefix": outputs.container_prefix,
        "nodes": [node.name for node in outputs.nodes],
        "results": outputs.storage_url,
        "services": {
            each.title: each.url.partition("?")[0] for each in outputs.services if each.url
        },
    }


def _service(service: Service, outputs: StackOutputs) -> list[tuple[str, str]]:
    """The address of a service, and the command that shows its password or token."""
    if not service.url:
        return [(service.title, _unmonitored(outputs) if service.title == MONITORING else "")]
    show = typed.command(f"train output {{}} --show-secrets -s {outputs.stack}")
    url, _, query = service.url.partition("?")
    rows = [(service.title, url + PAGES.get(service.output, NOTES.get(service.output, "")))]
    if query:  # which holds a token
        rows.append(("with its token", show.format(service.output)))
    elif service.password:
        what = "its password" if service.user else "its token"
        command = show.format(service.login)
        if service.output == DASHBOARD_URL:
            command = typed.command(f"train dashboard --print -s {outputs.stack}")
        rows.append((what, command))
    return rows


def _unmonitored(outputs: StackOutputs) -> str:
    if outputs.away:
        return "none: it is not on that machine's PATH (docs/monitoring.md)"
    monitor, up = typed.command("make monitoring"), typed.command("make up", outputs.stack)
    return f"none: {monitor}, then {up}"


def ends_soon(outputs: StackOutputs) -> str:
    """A sentence when the stack ends itself within the hour; else ""."""
    if outputs.expires_at is None or outputs.expires_at - datetime.now(UTC) > SOON:
        return ""
    lost = "its services end then, and rented machines with all their files; "
    if outputs.reserved_from is None:
        lost = "files on its machines are lost then; "
    return (
        f"stack {outputs.stack!r} ends itself {_ending(outputs.expires_at)}: {lost}"
        f"`train pull RUN -s {outputs.stack}` brings a run home"
    )


# By whether the stack is on other machines.
RESULTS = {False: "results stay", True: "nothing stays on rented machines"}
HEAD_SECONDS = 5


def _head_pod(stack: InCluster) -> str:
    """The head's pod, or how to find it where the cluster does not answer."""
    labels = f"ray.io/cluster={stack.ray_cluster},ray.io/node-type=head"
    command = [*stack.cluster.kubectl, "get", "pods", "--selector", labels]
    try:
        done = subprocess.run(
            [*command, "--output", "name", f"--request-timeout={HEAD_SECONDS}s"],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=2 * HEAD_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return shlex.join(command)
    return done.stdout.strip().removeprefix("pod/") or shlex.join(command)


def first_steps(outputs: StackOutputs) -> list[tuple[str, str]]:
    """Return the commands for a stack that has just come up, each with its effect."""
    stack, train = _option(outputs), typed.program("train")
    first = (f"{train} submit alexnet{stack} -- --epochs 1", "train a first model")
    if outputs.ray_cluster_file:  # Ray's own launcher has not started Ray
        first = (f"{train} cluster-file{stack}", "write a file, then start Ray with `ray up`")
    return [
        first,
        (f"{train} ui{stack}", "jobs, runs and nodes on one page"),
        (f"{train} info{stack}", "these addresses again, and more commands"),
        (f"{train} down{stack}", "end everything"),
    ]


def _option(outputs: StackOutputs) -> str:
    return "" if outputs.stack == typed.DEFAULT_STACK else f" -s {outputs.stack}"


def next_steps(outputs: StackOutputs) -> list[tuple[str, str]]:
    """Return the commands that a user is likely to want now, each with its effect."""
    stack, train = _option(outputs), typed.program("train")
    return [
        (f"{train} ui{stack}", "jobs, runs and curves in the browser"),
        (f"{train} new my_job", "write a job of your own"),
        (f"{train} runs{stack}", "list the runs with their figures"),
        (f"{train} show RUN --curves curves.png{stack}", "one run: settings, versions, curves"),
        (f"{train} pull RUN{stack}", "bring its records and newest checkpoint here"),
        (f"{train} submit alexnet{stack} -- --epochs 20", "train longer; --help shows the rest"),
        (f"{train} list{stack}", "jobs; then train logs, status and stop"),
        (f"{train} detach{stack}", "forget this cluster, which keeps running")
        if outputs.attached
        else (f"{train} down{stack}", f"end everything; {RESULTS[outputs.ssh is not None]}"),
    ]


def _ending(moment: datetime) -> str:
    """The time, and how far away it is: `at 2026-01-31 18:00 UTC, in 2 h 05 min`."""
    minutes = round((moment - datetime.now(UTC)).total_seconds() / 60)
    hours, rest = divmod(abs(minutes), 60)
    far = f"{hours} h {rest:02} min" if hours else f"{rest} min"
    when = f"in {far}" if minutes >= 0 else f"{far} ago by this machine's clock"
    return f"at {_at(moment)}, {when}"


def _at(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
