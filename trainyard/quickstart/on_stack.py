"""Training on a stack or an attached cluster: a job, whose results are a run in the store."""

import io
import json
import shutil
import tempfile
import zipfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ray import cloudpickle

from trainyard.client import api, connection, feasibility, job_log, jobs, recorded, store
from trainyard.client.console import say, warn
from trainyard.client.errors import ClientError, writing
from trainyard.client.job_server import Status
from trainyard.client.log_writer import LogWriter
from trainyard.client.outputs import StackOutputs
from trainyard.client.pull import records
from trainyard.client.pull.source import RunSource
from trainyard.quickstart import on_box
from trainyard.store import archive
from trainyard.tracking import run_folder

OUTCOME = f"{run_folder.OUTPUT}/{on_box.OUTCOME}"
JOB, WORK = "trainyard_fit.py", "trainyard_fit.pickle"
SCRIPT = f"""from pathlib import Path
from ray import cloudpickle
cloudpickle.loads(Path(__file__).with_name({WORK!r}).read_bytes())()
"""


@dataclass(frozen=True)
class StackSyncer:
    """Runs trainings as jobs of a stack, and brings their results here when they have ended."""

    outputs: StackOutputs
    code: bytes  # a zip file of the source folder, and of packages that only this machine has
    env: dict[str, Any]  # Ray's runtime environment: the packages
    here: Path  # the results' folder here

    @property
    def there(self) -> str:
        """Address of the results' folder there."""
        return self.outputs.storage_url

    def clean(self, run: str) -> None:
        """Removes a run, in the store and here; ClientError while a job writes it."""
        with connection.to(self.outputs) as reached:
            place, job = store.open_store(reached.outputs), jobs.newest(reached.outputs, run)
            if job and not job.status.ended:
                raise ClientError(f"{run} is on the stack as {job.label}: `train stop {run}` first")
            recorded.delete(place, run)
        shutil.rmtree(self.here / run, ignore_errors=True)
        say(f"removed earlier results of {run}, here and on stack {self.outputs.stack!r}")

    def run(self, run: str, *work: Any) -> list[on_box.Result]:
        """Trains on the stack, or waits for a training that began earlier, and brings results here.

        `work` is for `on_box.keep`. Paths in the results are relative to the results' folder.

        Raises:
            ClientError: it failed there, or the results could not be fetched.
        """
        try:
            status = self._earlier(run) or self._trained(run, work)
        except KeyboardInterrupt:
            try:
                say(f"{api.stop(run, self.outputs.stack)}; started again, it goes on")
            except ClientError as error:
                warn(f"warning: {run} may still be on the stack: {error}")
            raise
        with connection.to(self.outputs) as reached:
            place, folder = store.open_store(reached.outputs), self.here / run
            source = RunSource(place, run)
            source.sizes()
            with writing(folder, "make room there, then start it again"):
                folder.mkdir(parents=True, exist_ok=True)
                records.pull(source, folder, whole=True)
            content = place.get(f"{run}/{OUTCOME}") or b""
        if status != Status.SUCCEEDED:
            raise ClientError(
                f"the training failed on stack {self.outputs.stack!r}: `train logs {run}` says why"
            )
        say(f"results of {run}: {folder}")
        root = unquote(self.there.partition("://")[2])
        try:  # anyone who can write to the store may have made it
            return [
                (dict(metrics), _below(root, str(own)), _below(root, str(checkpoint)), str(fault))
                for metrics, own, checkpoint, fault in json.loads(content)
            ]
        except (TypeError, ValueError, RecursionError) as error:
            raise ClientError(f"{OUTCOME} of {run} is not that of a training ({error})") from None

    def _earlier(self, run: str) -> str:
        """The status of a training that this start collects; "" if it is to train."""
        with connection.to(self.outputs) as reached:
            outputs, job = reached.outputs, jobs.newest(reached.outputs, run)
            if job is None or job.status.ended:
                left = store.open_store(outputs).get(f"{run}/{OUTCOME}")
                here = self.here / run / OUTCOME
                fetched = left is None or (here.is_file() and here.read_bytes() == left)
                return "" if fetched else Status.SUCCEEDED
            say(f"{run} is on the stack already: this start waits for it, with its code")
            server, lost = jobs.connect(outputs), jobs.patience(outputs)
            write = LogWriter().write
            return job_log.follow(server, job.submission_id, write, lost_after_s=lost).status

    def _trained(self, run: str, work: tuple[Any, ...]) -> str:
        if scaling := work[-1].get("scaling_config"):
            count = scaling.num_workers if isinstance(scaling.num_workers, int) else 1
            bundles = [dict(scaling._resources_per_worker_not_none)] * count
            if why := feasibility.shortfall(bundles, self.outputs.nodes):
                remedy = feasibility.growth(bundles, self.outputs)
                raise ClientError(f"the training {why}: ask for less in ScalingConfig, or {remedy}")
        with tempfile.TemporaryDirectory() as folder:
            code, env = Path(folder, "code"), Path(folder, "env.json")
            zipfile.ZipFile(io.BytesIO(self.code)).extractall(code)
            (code / JOB).write_text(SCRIPT)
            pickled: bytes = cloudpickle.dumps(partial(on_box.keep, *work))  # type: ignore[no-untyped-call]
            (code / WORK).write_bytes(pickled)
            env.write_text(json.dumps(self.env))
            job, stack, where = str(code / JOB), self.outputs.stack, str(code)
            sent = api.submit(job, name=run, stack=stack, working_dir=where, runtime_env=str(env))
            return sent["status"]


def _below(root: str, path: str) -> str:
    """A path below a folder, relative to it; ValueError if it is elsewhere. "" stays."""
    if path and (fault := archive.fault_of_name(path.removeprefix(f"{root}/"))):
        raise ValueError(f"a path {fault}")
    return path.removeprefix(f"{root}/")
