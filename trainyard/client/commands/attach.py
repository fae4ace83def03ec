"""`train attach` uses a Ray that runs already like a stack, and `train detach` undoes it.

Only a file is written, which `train` reads in place of a stack's outputs. The cluster is asked by
one small job and is not changed.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote, urlsplit

import typer

from trainyard.access import outputs as names
from trainyard.access import parallel, user, users_file
from trainyard.access.terminal import agree
from trainyard.client import fields
from trainyard.client import outputs as contract
from trainyard.client.command import Stack
from trainyard.client.console import say, warn
from trainyard.client.errors import ClientError, writing

if TYPE_CHECKING:
    from trainyard.client.job_server import JobServer

DASHBOARD_PORT = 8265  # Ray's default
TOKEN = re.compile(r"[!-~]{1,4096}")
LOOPBACK = {"localhost", "127.0.0.1", "::1"}
MOST_GROUPS, MOST_NODES = 1000, 10_000  # that the autoscaler may start
ANSWER_S, ANSWER_MIB = 120.0, 4  # of the small job
ASK_S = 150.0  # for all questions to the cluster
# Runs on the head. Ray's monitor, a process there, has the file of Ray's launcher among its
# arguments: what the autoscaler may start is in no answer of the dashboard.
PROBE = """
import glob, json, os, sys, yaml
mark, folder = sys.argv[1:]
config = {}
for file in glob.glob("/proc/[0-9]*/cmdline"):
    try:
        words = open(file, errors="replace").read().split(chr(0))
    except OSError:
        continue
    given = dict(word.split("=", 1) for word in words if word.startswith("--") and "=" in word)
    if "--autoscaling-config" in given and given.get("--gcs-address") == os.environ["RAY_ADDRESS"]:
        path = os.path.expanduser(given["--autoscaling-config"])
        config = yaml.safe_load(open(os.path.join(os.path.dirname(file), "cwd", path)))
groups = {
    name: {key: group.get(key) for key in ("resources", "max_workers")}
    for name, group in config.get("available_node_types", {}).items()
    if name != config.get("head_node_type")
}
found = {"python": "%d.%d" % sys.version_info[:2], "groups": groups}
found |= {"most": config.get("max_workers"), "folder": not folder or os.path.isdir(folder)}
print(mark + json.dumps(found))
"""


def attach(
    address: Annotated[
        str,
        typer.Argument(
            help="Address of Ray's dashboard, such as http://localhost:8265, or your file from "
            "`train user add`."
        ),
    ],
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with Ray's token, or yours from `train user add`, readable by you only "
            "(default: no token)."
        ),
    ] = None,
    storage: Annotated[
        str,
        typer.Option(
            help="Store of results: a folder that this machine and all nodes share, or "
            "s3://bucket with AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in "
            "the environment here and on the nodes (default: none, results stay on the nodes)."
        ),
    ] = "",
    yes: Annotated[
        bool, typer.Option("--yes", help="Send the token over plain HTTP without asking.")
    ] = False,
    stack: Stack = None,
) -> None:
    """Use a Ray that runs already, such as after `ray start --head`, by a name like a stack's.

    TRAINYARD_STACK or -s then chooses it. Commands never follow RAY_ADDRESS. Only Hydra's launcher
    does, where no stack is chosen.
    """
    name = contract.chosen(stack)
    _check_free(name)
    token = ""
    if token_file is not None:
        _, token = _token(token_file)
    elif os.path.isfile(address):  # noqa: PTH113 - False for what cannot be a path
        address, token = _token(Path(address))
    url, store = _address(address), _storage(storage)
    cluster, text = described(name, url, store, token, yes=yes)
    _write(contract.attached_file(name), text)
    more = sum(node.on_demand for node in cluster.nodes)
    say(
        f"attached {url} as {name!r}: Ray {cluster.ray_version}, Python {cluster.python_version}, "
        f"nodes: {len(cluster.nodes) - more}" + (f", and up to {more} on demand" if more else "")
    )
    say(f"use it: export {contract.STACK_VARIABLE}={name}, or -s {name} with each command")


def of_environment() -> str:
    """Return the dashboard that RAY_ADDRESS or RAY_IP names, "" for none; ClientError if odd."""
    address = os.environ.get("RAY_ADDRESS", "")  # in jobs one of Ray's own protocol
    text = address if address.startswith(("http://", "https://")) else os.environ.get("RAY_IP", "")
    return _address(text) if text else ""


@cache  # a search of Hydra's launches many batches
def described(
    name: str, url: str, store: str = "", token: str = "", *, yes: bool = False
) -> tuple[contract.StackOutputs, str]:
    """Ask a Ray for its versions and nodes; returns its outputs, also as the text of a file.

    Raises:
        ClientError: it does not answer or not as a Ray, or the token was not sent.
    """
    if url.startswith("http:") and urlsplit(url).hostname not in LOOPBACK:
        warn(
            f"warning: nothing encrypts the way to {url}: anyone on it can read jobs and tokens. "
            "Use it within a VPN only, or forward its port by SSH and attach http://localhost:PORT"
        )
        if token and not yes and not agree("Send the token unencrypted with each command?"):
            raise ClientError(f"the token was not sent to {url}: --yes sends it unencrypted")
    values = {
        **names.NOTHING,
        names.STACK: name,
        names.DASHBOARD_URL: url,
        names.RAY_TOKEN: token,
        names.STORAGE_URL: store,
        names.SERVICES: [
            {"title": "Ray", "url": names.DASHBOARD_URL, "login": names.RAY_TOKEN, "user": ""}
        ],
    }
    outputs = contract.parse(json.dumps(values), name, url)
    try:
        values |= parallel.start(_ask, outputs).result(ASK_S)
    except (TimeoutError, fields.FieldError) as error:
        why = str(error) or f"no answer within {ASK_S:g} s"
        raise ClientError(
            f"{url} does not describe its cluster ({why}): look at what listens there, then attach "
            "it again"
        ) from None
    text = json.dumps(values)
    if len(text) > contract.MOST_BYTES:
        raise ClientError(
            f"{url} describes its nodes in {len(text)} bytes, at most {contract.MOST_BYTES} are "
            "kept: attach a cluster of fewer nodes"
        )
    return contract.parse(text, name, url), text  # what a stranger's cluster said is checked


def detach(stack: Stack = None) -> None:
    """Forget an attached cluster; it keeps running, with its jobs and results."""
    name = contract.chosen(stack)
    if not contract.is_attached(name):
        folder = contract.attached_file("").parent
        known = ", ".join(sorted(path.stem for path in folder.glob("*.json"))) or "none"
        raise ClientError(f"no cluster is attached as {name[:80]!r}: attached are {known}")
    try:
        contract.attached_file(name).unlink()
    except OSError as error:
        raise ClientError(f"cannot remove {error.filename} ({error.strerror})") from None
    say(f"detached {name!r}; the cluster keeps running")


def _check_free(name: str) -> None:
    if not contract.NAME.fullmatch(name):
        raise ClientError(
            f"--stack {name[:80]!r} is not 1 to 100 letters, digits, '.', '_' or '-': give "
            "another name"
        )
    contract.check_no_settings(name)
    try:
        contract.of_state(name)
    except ClientError:
        return
    raise ClientError(f"{name!r} is a stack: attach the cluster by another name with -s NAME")


def _address(text: str) -> str:
    try:
        url = urlsplit(text if "://" in text else f"http://{text}")
        port = url.port or (443 if url.scheme == "https" else DASHBOARD_PORT)
        extra = url.path.rstrip("/") or url.query or url.fragment or url.username is not None
        if url.scheme in ("http", "https") and url.hostname and not extra:
            host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
            return f"{url.scheme}://{host}:{port}"
    except ValueError:
        pass
    raise ClientError(
        f"{text[:80]!r} is not the address of a dashboard: give one such as "
        f"http://192.0.2.7:{DASHBOARD_PORT}"
    )


def _storage(text: str) -> str:
    if text.startswith("s3://") and text.removeprefix("s3://").strip("/"):
        return text
    if text.startswith("file:///"):
        text = unquote(urlsplit(text).path)
    if "://" in text:
        raise ClientError(
            f"--storage {text[:200]!r} is not a store: give a folder, or s3://<bucket>[/<prefix>]"
        )
    return Path(text).expanduser().absolute().as_uri() if text else ""


def _token(file: Path) -> tuple[str, str]:
    """Return the address in a user's file, "" in one that has only a token, and the token."""
    advice = "name the file with the cluster's token, such as ~/.ray/auth_token"
    text = contract.read_private(file.expanduser(), "token file", advice).strip()
    address = ""
    with suppress(*fields.FAULTS):
        found = json.loads(text)
        address, text = (fields.typed(found, name, str) for name in ("address", "token"))
    if not TOKEN.fullmatch(text):
        raise ClientError(f"token file {file} does not have one word of ASCII: {advice}")
    return address, text


def _ask(outputs: contract.StackOutputs) -> dict[str, Any]:
    """Asks a cluster for its versions and nodes."""
    from trainyard.client import jobs, store, submission
    from trainyard.client.state import ClusterState

    server = jobs.connect(outputs)
    folder = ""
    if outputs.storage_url:
        store.check(store.open_store(outputs))
    if outputs.storage_url.startswith("file:"):
        folder = unquote(urlsplit(outputs.storage_url).path)
    say(f"asking {outputs.dashboard_url} by a small job, which takes some seconds")
    mark = secrets.token_hex()
    job_id = submission.send(
        outputs,
        entrypoint=shlex.join(["python", "-c", PROBE, mark, folder]),
        metadata={"job": "attach", "user": user.name()},
    )
    found = _answer(server, job_id, mark, outputs)
    if found["folder"] is not True:
        raise ClientError(
            f"the head of {outputs.dashboard_url} does not have the folder {folder}: give "
            "--storage a folder that this machine and all nodes share, or s3://<bucket>"
        )
    said = server.version(jobs.SERVER_TIMEOUT_S)
    version = fields.typed(said, "ray_version", str)
    me = fields.identifier({"user": None, **said}, "user")  # of a queue, by a token of one user
    nodes = [*ClusterState(outputs).declared(), *_on_demand(found["groups"], found["most"])]
    known = {names.RAY_VERSION: version, names.PYTHON_VERSION: found["python"]}
    known |= {names.QUEUE: "true"} if said.get("queue") else {}
    return known | {names.NODES: nodes, names.OWNER: me}


def _answer(
    server: JobServer, job_id: str, mark: str, outputs: contract.StackOutputs
) -> dict[str, Any]:
    from trainyard.client import failure, jobs
    from trainyard.client.dashboard import DashboardError, TooLongError

    try:
        job = jobs.wait_for_end(server, job_id, ANSWER_S, "to describe the cluster")
    except ClientError:
        with suppress(DashboardError):
            server.stop(job_id)
        raise
    why = failure.of(job) if job.message else "it printed no answer"
    try:
        lines = server.raw_log(job_id, ANSWER_MIB).decode(errors="replace").splitlines()
        said = next((line.removeprefix(mark) for line in lines if line.startswith(mark)), "")
        found = json.loads(said)
        fields.identifier(found, "python")
        return {key: found[key] for key in ("python", "groups", "most", "folder")}
    except (TooLongError, *fields.FAULTS) as error:
        why = str(error) if isinstance(error, TooLongError) else why
        raise ClientError(
            f"{outputs.dashboard_url} cannot run a small job ({why[:500]}): look at the log of "
            f"{job_id} in its dashboard"
        ) from None


def _on_demand(groups: Any, most: Any) -> list[dict[str, Any]]:
    """The nodes that the autoscaler may start, in the form of the output `nodes`."""
    found, size = [], 0
    try:
        if len(groups) > MOST_GROUPS:
            raise ValueError(f"{len(groups)} groups, at most {MOST_GROUPS} are read")
        for name, group in groups.items():
            offers = fields.bundle(group["resources"])
            node = {
                "name": fields.identifier({"group": name}, "group"),
                "group": name,
                "onDemand": True,
                "cpus": offers.pop("CPU", 0),
                "gpus": offers.pop("GPU", 0),
                "memoryMib": offers.pop("memory", contract.UNKNOWN_MIB * 2**20) / 2**20,
                "objectStoreMib": offers.pop("object_store_memory", 0) / 2**20,
                "resources": offers,
            }
            limit = group["max_workers"] if group["max_workers"] is not None else most
            count = int(fields.amount({"max_workers": limit}, "max_workers"))
            count = min(count, MOST_NODES // len(groups))
            if (size := size + count * len(json.dumps(node))) > contract.MOST_BYTES:
                raise ValueError(f"{size} bytes of nodes, at most {contract.MOST_BYTES} are kept")
            found += [node] * count
    except fields.FAULTS as error:
        raise ClientError(
            f"the file of Ray's launcher on the head is not one ({fields.reason(error)}): correct "
            "it, then `ray up` again"
        ) from None
    return found


def _write(path: Path, text: str) -> None:
    with writing(path, "make room there"):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.exists():
            path.chmod(0o600)
        users_file.replace(path, text, mode=0o600)  # it may have a token
