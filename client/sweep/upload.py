"""What is sent of a sweep: the script's folder, Trainyard's own package, and the points."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shlex import join
from typing import Any

from client import scripts, submission
from client.errors import ClientError
from client.outputs import StackOutputs
from client.scripts import Script
from client.sweep.point import Point
from training import run_folder

JOB_ID_BYTES = 8
# Ray gives a worker back after half a second, and asks for it anew, which takes a fifth of one.
# Another job waits for a sweep's workers only so much longer.
LEASE, LEASE_MS = "RAY_worker_lease_timeout_milliseconds", 5000
# What Ray's options are called that a bundle has under other names.
ENTRYPOINT = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}


@dataclass(kw_only=True, eq=False)
class Upload:
    """What the jobs of a sweep have in common.

    Attributes:
        script: of the points.
        points: folder with the pickled points.
        sweep: its name.
        outputs: of the stack.
    """

    script: Script
    points: Path
    sweep: str
    outputs: StackOutputs

    def environment(self, run: str, file: Path | None) -> dict[str, Any]:
        """The runtime environment of a job, with a file of the user's."""
        common = self._common(file)
        return common | {"env_vars": common["env_vars"] | {run_folder.RUN_VARIABLE: run}}

    @cache  # noqa: B019 - there is one of these
    def _common(self, file: Path | None) -> dict[str, Any]:
        env = submission.runtime_env(file, self.script, self.sweep, progress=False)
        modules = [*env.get("py_modules", []), str(self.points)]
        if self.script.module is None:
            modules.append(str(scripts.PACKAGE))
        return env | {"py_modules": modules}

    def send_point(self, point: Point, job_id: str) -> None:
        """Sends a point as a job of its own.

        Raises:
            ClientError: the server refused it.
        """
        bundle = point.bundle
        named: dict[str, Any] = {
            f"entrypoint_{ENTRYPOINT[k]}": v for k, v in bundle.items() if k in ENTRYPOINT
        }
        custom = {k: v for k, v in bundle.items() if k not in ENTRYPOINT}
        if custom:
            named["entrypoint_resources"] = custom
        if "entrypoint_memory" in named:
            named["entrypoint_memory"] = int(named["entrypoint_memory"])
        command = f"python -m training.sweep.point {point.number} {job_id}"
        env = self.environment(f"{self.sweep}-{point.number}", point.runtime_env)
        self._send(env, job_id, command, [bundle], named)

    def send_tasks(self, points: Sequence[Point], job_id: str) -> None:
        """Sends points as the tasks of one job.

        Raises:
            ClientError: the server refused it.
        """
        files = {each.runtime_env for each in points}
        if len(files) > 1:
            raise ClientError(
                f"the points have {len(files)} runtime environments and tasks of one job share "
                "one: sweep over one accelerator at a time, or leave hydra.launcher.unit=job"
            )
        asked = [f"{p.number}:{json.dumps(p.bundle, separators=(',', ':'))}" for p in points]
        command = join(["python", "-m", "training.sweep.tasks", job_id, *asked])
        env = self.environment(self.sweep, *files)
        # Lines of several points that differ in numbers alone are not one line.
        env["env_vars"] |= {"RAY_DEDUP_LOGS": "0", LEASE: str(LEASE_MS)}
        self._send(env, job_id, command, [], {})

    def _send(
        self,
        env: dict[str, Any],
        job_id: str,
        command: str,
        demand: Sequence[dict[str, float]],
        entrypoint: dict[str, Any],
    ) -> None:
        run = env["env_vars"][run_folder.RUN_VARIABLE]
        submission.send(
            self.outputs,
            entrypoint=command,
            submission_id=job_id,
            runtime_env=env,
            metadata=submission.metadata(
                self.script, run, env["env_vars"][run_folder.COMMIT_VARIABLE], demand
            ),
            **entrypoint,
        )


def new_job_id() -> str:
    """An id as Ray's own are; known before the job is sent, so that the folder can note it."""
    return f"raysubmit_{secrets.token_hex(JOB_ID_BYTES)}"


def check_script(script: Script) -> None:
    """Refuses a folder that would hide Trainyard's package on the nodes.

    Raises:
        ClientError: it has a `training` of its own.
    """
    if script.working_dir is None:
        return
    theirs = Path(script.working_dir, scripts.PACKAGE.name)
    if theirs.exists() and theirs.resolve() != scripts.PACKAGE:
        raise ClientError(
            f"{theirs} hides Trainyard's own package of that name on the nodes: give it another "
            "name, or upload another folder with hydra.launcher.working_dir=FOLDER"
        )
