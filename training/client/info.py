"""Where a stack is, and what to type next: what `make demo` ends with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from training.client.outputs import StackOutputs

SOON = timedelta(hours=1)
NO_PROMETHEUS = "none, for it is not on PATH (docs/monitoring.md)"


def addresses(outputs: StackOutputs) -> list[tuple[str, str]]:
    """What the stack has, each with its address; what it has not is left out."""
    nodes = "; ".join(
        f"{node.name} {node.cpus:g} CPU {node.gpus:g} GPU {node.memory_mib / 1024:.1f} GiB"
        for node in outputs.nodes
    )
    show = f"python -m engine output {{}} --show-secrets -s {outputs.stack}"
    rows = [
        ("stack", f"{outputs.stack} (Ray {outputs.ray_version}, Python {outputs.python_version})"),
        ("nodes", nodes),
        ("runs on", f"{ssh.where}: the addresses below are there" if (ssh := outputs.ssh) else ""),
        ("to have them here", f"train tunnel -s {outputs.stack}" if ssh else ""),
        ("ends itself", _ending(outputs.expires_at) if outputs.expires_at else ""),
        ("Ray dashboard", outputs.dashboard_url),
        ("its token", f"train dashboard --print -s {outputs.stack}"),
        ("results", outputs.storage_url),
        ("object store", outputs.object_store_endpoint),
        ("Prometheus", outputs.prometheus_url or NO_PROMETHEUS),
        ("its password", outputs.prometheus_password and show.format("prometheusPassword")),
        ("Grafana", outputs.grafana_url),
        ("its password", outputs.grafana_password and show.format("grafanaPassword")),
        # Its token is in the query.
        ("notebook", outputs.notebook_url.partition("?")[0]),
        ("with its token", outputs.notebook_url and show.format("notebookUrl")),
        ("MLflow", outputs.tracking_url),
        ("its password", outputs.tracking_password and show.format("trackingPassword")),
        ("what is served", outputs.serve_url and f"{outputs.serve_url} (train serve RUN)"),
        ("its token", outputs.serve_url and show.format("serveToken")),
    ]
    return [row for row in rows if row[1]]


def ends_soon(outputs: StackOutputs) -> str:
    """A sentence when the stack's machines end themselves within the hour; else ""."""
    if outputs.expires_at is None or outputs.expires_at - datetime.now(UTC) > SOON:
        return ""
    return (
        f"stack {outputs.stack!r} ends itself {_ending(outputs.expires_at)}: what is on its "
        "machines then is lost"
    )


# By whether the stack is on other machines.
RESULTS = {False: "results stay", True: "of rented machines nothing stays"}


def next_steps(outputs: StackOutputs) -> list[tuple[str, str]]:
    """Commands for what a user is likely to want now, each with what it does."""
    stack = "" if outputs.stack == "dev" else f" -s {outputs.stack}"
    make = "" if outputs.stack == "dev" else f" STACK={outputs.stack}"
    return [
        (f"train dashboard{stack}", "open Ray's dashboard, and print its token"),
        (f"train runs{stack}", "what was trained, with its accuracies"),
        (f"train show RUN --curves curves.png{stack}", "one run: settings, versions, curves"),
        (f"train submit alexnet{stack} -- --epochs 20", "train longer; --help shows the rest"),
        (f"train list{stack}", "jobs; then train logs, status and stop"),
        (f"make down{make}", f"end everything; {RESULTS[outputs.ssh is not None]}"),
    ]


def _ending(moment: datetime) -> str:
    """The time, and how far it is: `at 2026-01-31 18:00 UTC, in 2 h 05 min`."""
    minutes = round((moment - datetime.now(UTC)).total_seconds() / 60)
    hours, rest = divmod(abs(minutes), 60)
    far = f"{hours} h {rest:02} min" if hours else f"{rest} min"
    when = f"in {far}" if minutes >= 0 else f"{far} ago"
    return f"at {moment:%Y-%m-%d %H:%M} UTC, {when}"
