"""One run in MLflow: parameters, metrics, curves, and its checkpoint as a version of a model.

Each value is logged once, even if a resumed run or its driver logs it again. Errors are raised;
trainyard/tracking/tracking.py keeps them away from the training.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException

from trainyard import json_values
from trainyard.report import curves
from trainyard.resume import checkpoint_files
from trainyard.serving import uploaded
from trainyard.tracking import cost, pyfunc, run_folder
from trainyard.tracking.run_folder import COMMIT_VARIABLE, CURVES, TRACKED

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from trainyard.tracking.run_folder import RunFolder

JOB_VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # Ray's, with the submission id
JOB = "job_submission_id"
COST = "trainyard.cost"  # a metric: those of jobs have other names
PARAMS_AT_ONCE = 100  # MLflow's limits of a request
METRICS_AT_ONCE = 1000

Records = Sequence[dict[str, Any]]


class MlflowLog:
    """An existing run of MLflow."""

    def __init__(self, run: RunFolder, client: MlflowClient, info: Any) -> None:
        self._run = run
        self._client = client
        self._id = str(info.run_id)
        self._began_ms = int(info.start_time)
        self._logged: dict[str, set[int]] = {}  # steps, by metric
        self._refused: set[str] = set()

    @classmethod
    def find(cls, run: RunFolder, client: MlflowClient) -> MlflowLog | None:
        """Return the log that an earlier start, or another process, has begun."""
        known = _record(run).get("run_id")
        if known is None:
            return None
        try:
            return cls(run, client, client.get_run(known).info)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None  # another server, or its database was lost

    @classmethod
    def create(cls, run: RunFolder, client: MlflowClient, job: str) -> MlflowLog:
        """Return a new log in the job's experiment."""
        info = client.create_run(_experiment(client, job), run_name=run.name).info
        known = {"run_id": info.run_id, "experiment_id": info.experiment_id}
        run.write(TRACKED, json.dumps(known).encode())
        return cls(run, client, info)

    def describe(self, config: dict[str, Any]) -> None:
        """Logs a start: its parameters and where they came from."""
        self._client.update_run(self._id, status="RUNNING")
        known = self._client.get_run(self._id).data.params
        values = {k: v if isinstance(v, str) else json_values.text(v) for k, v in config.items()}
        params = [Param(name, value) for name, value in values.items() if name not in known]
        # MLflow's parameters keep their first values; a resumed run's other values are tags.
        changed = {f"resumed.{k}": v for k, v in values.items() if known.get(k, v) != v}
        tags = [RunTag(name, value) for name, value in (changed | self._origin()).items() if value]
        self._send("params", params, PARAMS_AT_ONCE)
        self._send("tags", tags, PARAMS_AT_ONCE)

    def log(self, history: Records) -> None:
        """Logs the metrics that MLflow does not have yet; a step is an epoch, from 1."""
        new = [metric for at, record in enumerate(history) for metric in self._metrics(at, record)]
        self._send("metrics", new, METRICS_AT_ONCE)

    def finish(self, job: str) -> None:
        """Ends the log, and adds the model and the curves: what fails keeps nothing before away."""
        self._client.set_terminated(self._id, "FINISHED")
        # MLflow does not accept a local folder as a source: it would be the server's.
        if self._run.url.startswith("s3://"):
            self._register(re.sub("[/:]", ".", job))  # a model's name has none
        if (picture := self._run.read(CURVES)) is not None:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / CURVES
                file.write_bytes(picture)
                self._client.log_artifact(self._id, str(file))
        self._note_cost()

    def stop(self, status: str) -> None:
        """Ends the log of an unfinished run, which may resume later, as `FAILED` or `KILLED`."""
        self._client.set_terminated(self._id, status)
        self._note_cost()

    def _note_cost(self) -> None:
        """Logs what the run has cost, in $, if a queue knows it."""
        if (now := cost.so_far(facts := _facts(), self._run.name)) is not None:
            earlier = run_folder.whole_records(self._run.read(run_folder.JOBS))
            others = [each for each in earlier if each.get("job") != facts.get(JOB)]
            self._client.log_metric(self._id, COST, now + (run_folder.cost(others) or 0.0))

    def _metrics(self, index: int, record: dict[str, Any]) -> list[Metric]:
        step, minutes = curves.epoch_of(record, index), curves.number(record.get("minutes"))
        # The same in every process that logs this epoch: MLflow keeps one of two equal values.
        when = time.time() * 1000 if minutes is None else self._began_ms + 60_000 * minutes
        found = []
        for key, value in record.items():
            if key == "epoch" or isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if key not in self._logged:
                there = self._client.get_metric_history(self._id, key)
                self._logged[key] = {metric.step for metric in there}
            if step not in self._logged[key] and key not in self._refused:
                found.append(Metric(key, value, int(when), step))
        return found

    def _send(self, kind: str, items: Sequence[Any], most: int) -> None:
        """Logs `metrics`, `params` or `tags`, so many at once; halves a request that is refused."""
        for first in range(0, len(items), most):
            part = items[first : first + most]
            try:
                self._client.log_batch(self._id, **{kind: part})  # type: ignore[arg-type]
            except MlflowException as error:
                if error.error_code != "INVALID_PARAMETER_VALUE":
                    raise
                if len(part) > 1:
                    self._send(kind, part, (len(part) + 1) // 2)
                else:
                    self._refuse(kind, part[0].key, str(error).strip().splitlines()[0][:200])
            else:
                for each in part if kind == "metrics" else ():
                    self._logged[each.key].add(each.step)

    def _refuse(self, kind: str, name: str, why: str) -> None:
        self._refused.add(name)
        record = _record(self._run)
        if name in (known := record.get("refused", [])):
            return  # another process of the run has said so
        self._run.write(TRACKED, json.dumps(record | {"refused": [*known, name]}).encode())
        advice = "give it another name; the others are logged"
        print(f"warning: MLflow refuses {name!r} of the {kind} ({why}): {advice}", flush=True)  # noqa: T201

    def _origin(self) -> dict[str, str]:
        job = _facts()
        return {
            "trainyard.run": self._run.url,
            "trainyard.job": job.get(JOB, ""),
            "mlflow.source.git.commit": os.environ.get(COMMIT_VARIABLE, ""),
        }

    def _register(self, name: str) -> None:
        """Makes the newest checkpoint a version of the model, unless it is one already."""
        record = _record(self._run)
        found = checkpoint_files.valid(self._run.store)
        if not found or found[0][0] == record.get("checkpoint"):
            return
        checkpoint, manifest = found[0]
        model = manifest["model"]
        with suppress(MlflowException):  # it exists; if not, creating the version fails
            self._client.create_registered_model(name)
        tags = {
            "run": self._run.name,
            "architecture": str(model.get("architecture", "")),
            "classes": json.dumps(model.get("classes", [])),
            "sha256": manifest["files"].get(model.get("file"), {}).get("sha256", ""),
        }
        code = self._run.read(uploaded.FILE)
        pyfunc.describe(self._run.store, checkpoint, manifest, code)
        source = f"{self._run.url}/{checkpoint}"
        self._client.create_model_version(name, source, self._id, tags, await_creation_for=0)
        self._run.write(TRACKED, json.dumps(record | {"checkpoint": checkpoint}).encode())


def _facts() -> dict[str, str]:
    """Return the metadata of this job."""
    return dict(json.loads(os.environ.get(JOB_VARIABLE) or "{}").get("metadata", {}))


def _record(run: RunFolder) -> dict[str, Any]:
    return dict(json.loads(run.read(TRACKED) or b"{}"))


def _experiment(client: MlflowClient, name: str) -> str:
    found = client.get_experiment_by_name(name)
    if found is None:
        with suppress(MlflowException):  # another run has just made it; if not, see below
            return str(client.create_experiment(name))
        found = client.get_experiment_by_name(name)
    if found is None:
        raise MlflowException(f"experiment {name!r} can neither be made nor found")
    return str(found.experiment_id)
