"""Where a stack is, and what to type next: what `make demo` ends with."""

from __future__ import annotations

from training.client.outputs import StackOutputs


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
        ("Ray dashboard", outputs.dashboard_url),
        ("its token", show.format("rayToken")),
        ("results", outputs.storage_url),
        ("object store", outputs.object_store_endpoint),
        ("Prometheus", outputs.prometheus_url),
        ("its password", outputs.prometheus_password and show.format("prometheusPassword")),
        ("Grafana", outputs.grafana_url),
        ("its password", outputs.grafana_password and show.format("grafanaPassword")),
        # Its token is in the query.
        ("notebook", outputs.notebook_url.partition("?")[0]),
        ("with its token", outputs.notebook_url and show.format("notebookUrl")),
    ]
    return [row for row in rows if row[1]]


def next_steps(outputs: StackOutputs) -> list[tuple[str, str]]:
    """Commands for what a user is likely to want now, each with what it does."""
    stack = "" if outputs.stack == "dev" else f" -s {outputs.stack}"
    make = "" if outputs.stack == "dev" else f" STACK={outputs.stack}"
    return [
        (f"train runs{stack}", "what was trained, with its accuracies"),
        (f"train show RUN --curves curves.png{stack}", "one run: settings, versions, curves"),
        (f"train submit alexnet{stack} -- --epochs 20", "train longer; --help shows the rest"),
        (f"train list{stack}", "jobs; then train logs, status and stop"),
        (f"make down{make}", "end everything; results stay"),
    ]
