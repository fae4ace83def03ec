"""Versions of models and their aliases in a stack's MLflow, by its REST API.

MLflow's own client takes seconds to import.
"""

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from urllib3 import make_headers

from trainyard.access.outputs import TRACKING_URL
from trainyard.client import fields, health, history, results
from trainyard.client.dashboard import DashboardError, JsonServer, RefusedError
from trainyard.client.errors import ClientError
from trainyard.client.outputs import StackOutputs
from trainyard.client.store import open_store
from trainyard.tracking import run_folder

SCHEME = "models:/"
ADDRESS = re.compile(SCHEME + r"([^/@]+)(?:@([^/@]+)|/([0-9]+))")


def promote(run: str, alias: str, outputs: StackOutputs) -> tuple[str, str]:
    """Gives an alias to the newest version of a model that a run made; it leaves its former one.

    Returns the model's name and the version.

    Raises:
        ClientError: the stack has no MLflow, or it does not answer; the run is not there, has no
            version, or the alias is refused.
    """
    history.read_run(store := open_store(outputs), run)
    ids = results.tracked_ids(store, run)
    wanted = {"filter": f"run_id='{ids[-1]}'", "max_results": "1000"} if ids else {}
    found = _ask(outputs, "model-versions/search", wanted) if ids else {}
    if not (versions := found.get("model_versions")):
        raise ClientError(
            f"run {run!r} has no version of a model in MLflow: a job gives it one when it ends, in "
            "a stack with tracking and an object store (docs/tracking.md)"
        )
    newest = max(versions, key=lambda each: int(each["version"]))
    named = {"name": newest["name"], "version": newest["version"]}
    _ask(outputs, "registered-models/alias", {**named, "alias": alias}, change=True)
    return str(newest["name"]), str(newest["version"])


def version(address: str, outputs: StackOutputs) -> tuple[str, str, str]:
    """Return a version's model, run and checkpoint: of `models:/NAME@ALIAS` or `models:/NAME/3`.

    Raises:
        ClientError: it is no such address, or MLflow has no such version.
    """
    parts = ADDRESS.fullmatch(address)
    if parts is None:
        raise ClientError(f"{address[:80]!r} is not {SCHEME}NAME@ALIAS or {SCHEME}NAME/VERSION")
    name, alias, number = parts.groups()
    try:
        found = (
            _ask(outputs, "registered-models/alias", {"name": name, "alias": alias})
            if alias
            else _ask(outputs, "model-versions/get", {"name": name, "version": number})
        )
        source = str(fields.typed(fields.typed(found, "model_version", dict), "source", str))
    except fields.FieldError as error:
        raise ClientError(f"MLflow does not say where {address} is ({error})") from None
    # Anyone who can write to MLflow can name any source: only runs of this store are served.
    inside = source.removeprefix(f"{outputs.storage_url}/").split("/")
    if len(inside) != 2 or not inside[1].startswith(run_folder.CHECKPOINT):
        raise ClientError(
            f"{address} is at {source[:200]}, which is not a checkpoint in {outputs.storage_url}: "
            "serve it in the stack that trained it"
        )
    return name, inside[0], inside[1]


def _ask(
    outputs: StackOutputs, what: str, values: Mapping[str, str], *, change: bool = False
) -> Any:
    service = next((each for each in outputs.services if each.output == TRACKING_URL), None)
    if service is None or not service.url:
        raise ClientError(
            f"stack {outputs.stack!r} has no MLflow: run `train config set tracking mlflow`, "
            "then `make up`"
        )
    login = make_headers(basic_auth=f"{service.user}:{service.password}")
    server, path = JsonServer(service.url, login), f"/api/2.0/mlflow/{what}"
    try:
        return server.post(path, values) if change else server.get(f"{path}?{urlencode(values)}")
    except RefusedError as error:
        raise ClientError(f"MLflow refuses this: {_said(error)}") from None
    except DashboardError as error:
        raise ClientError(
            f"MLflow does not answer at {service.url} ({error}): {health.remedy(outputs)}"
        ) from None


def _said(error: RefusedError) -> str:
    try:
        return str(json.loads(error.text)["message"])[:300]
    except (ValueError, LookupError, TypeError):
        return str(error)
