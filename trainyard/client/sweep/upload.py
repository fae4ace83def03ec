"""The upload of a sweep: the script's folder, Trainyard's own package, and the points."""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shlex import join
from typing import Any

from trainyard.client import listing, package, scripts, submission
from trainyard.client.errors import ClientError
from trainyard.client.outputs import StackOutputs
from trainyard.client.scripts import Script
from trainyard.client.sweep.point import Point, settings
from trainyard.tracking import run_folder

# Ray gives a worker back after half a second, and getting it again takes a fifth of one.
# Another job waits for a sweep's workers only so much longer.
LEASE, LEASE_MS = "RAY_worker_lease_timeout_milliseconds", 5000


@dataclass(kw_only=True, eq=False)
class Code:
    """The upload of a batch's jobs except the points: code, data, packages, variables.

    It is copied when the batch begins. Points may wait for hours until they are sent, and files
    that are edited meanwhile would not match their identities.
    """

    script: Script  # the script that computes the points
    copies: Path  # folder for the copies
    secrets: tuple[str, ...]  # the stack's secret values; no uploaded file may hold one

    @cache  # noqa: B019 - there is one of these
    def environment(self, file: Path | None) -> dict[str, Any]:
        """The runtime environment of all jobs, except the names of their runs.

        Raises:
            ClientError: something cannot be read, or may not be uploaded.
        """
        env = submission.runtime_env(file, self.script, "", progress=False)
        modules = list(env.get("py_modules", []))
        if self.script.module is None:
            modules.append(str(scripts.PACKAGE))
        env["py_modules"] = [self._copied(each, env["excludes"]) for each in modules]
        for key in ("working_dir", *_files(env)):
            if key in env:
                env[key] = self._copied(env[key], env["excludes"])
        return env

    @cache  # noqa: B019
    def digest(self, file: Path | None) -> str:
        """Return a digest of the code: with another digest a point is another point."""
        env = dict(self.environment(file))
        variables = dict(env.pop("env_vars"))
        for name in (run_folder.COMMIT_VARIABLE, run_folder.PROGRESS_VARIABLE):
            del variables[name]
        sent = [each for each in (env.pop("working_dir", None), *env.pop("py_modules")) if each]
        for key in _files(env):
            sent.append(env[key])
            env[key] = ""
        digest = hashlib.sha256(json.dumps([env, variables], sort_keys=True, default=str).encode())
        for location in sent:
            folder = Path(location)
            if package.is_remote(location):
                digest.update(json.dumps(location).encode())
            # Folders do not count: the sweep's own is empty here, and not there at first.
            inside = (path for path in folder.rglob("*") if path.is_file())
            for path in [folder] if folder.is_file() else sorted(inside):
                name = path.relative_to(folder).as_posix() if folder.is_dir() else path.name
                digest.update(json.dumps([name, *_file(path)]).encode())
            digest.update(b"\n")
        return digest.hexdigest()

    def _copied(self, location: str, excludes: Sequence[str]) -> str:
        source = Path(location).absolute()
        if package.is_remote(location) or not source.exists():
            return location  # a later check reports a missing one
        target = Path(tempfile.mkdtemp(dir=self.copies), source.name)
        try:
            found = listing.of_module(source, excludes)
            package.check_upload(location, found, self.secrets)
            if source.is_file():
                return str(shutil.copy(source, target))
            for folder in found.folders:
                (target / folder.relative_to(source)).mkdir(parents=True, exist_ok=True)
            for entry in found.files:
                shutil.copy(entry.path, target / entry.name)
        except OSError as error:
            raise ClientError(
                f"cannot copy {error.filename}, which is uploaded ({error.strerror}): make it "
                f"readable, or name it in .rayignore, and have room in {self.copies.parent}"
            ) from None
        return str(target)


@dataclass(kw_only=True, eq=False)
class Upload:
    """The common part of the jobs of a sweep."""

    code: Code  # the code that computes the points
    points: Path  # folder with the pickled points
    sweep: str  # its name
    outputs: StackOutputs

    def environment(self, run: str, file: Path | None) -> dict[str, Any]:
        """The runtime environment of a job, with a file of the user's."""
        env = self.code.environment(file)
        # Nodes may have a store of their own, which this side would not look into.
        unstored = {} if self.outputs.shows_runs else {run_folder.STORAGE_VARIABLE: ""}
        return env | {
            "py_modules": [*env["py_modules"], str(self.points)],
            "env_vars": env["env_vars"] | {run_folder.RUN_VARIABLE: run} | unstored,
        }

    def send_point(self, point: Point, job_id: str) -> None:
        """Sends a point as a job of its own; ClientError if the server refused it."""
        own = ("python", "-m", "trainyard.sweep.point", str(point.number), job_id)
        command = join([*submission.RECORDER, *own])
        env = self.environment(f"{self.sweep}-{point.number}", point.runtime_env)
        options = submission.entrypoint_options(point.bundle)
        facts = {"settings": json.dumps(settings(point.overrides)), "runs": self.sweep}
        self._send(env, job_id, command, [point.bundle], facts, **options)

    def send_tasks(self, points: Sequence[Point], job_id: str) -> None:
        """Sends points as the tasks of one job; ClientError if the server refused it."""
        files = {each.runtime_env for each in points}
        if len(files) > 1:
            raise ClientError(
                f"the points have {len(files)} runtime environments and tasks of one job share "
                "one: sweep over one accelerator at a time, or leave hydra.launcher.unit=job"
            )
        asked = [f"{p.number}:{json.dumps(p.bundle, separators=(',', ':'))}" for p in points]
        command = join(
            [*submission.RECORDER, "python", "-m", "trainyard.sweep.tasks", job_id, *asked]
        )
        env = self.environment(self.sweep, *files)
        # Lines of several points that differ only in numbers must not become one line.
        env["env_vars"] |= {"RAY_DEDUP_LOGS": "0", LEASE: str(LEASE_MS)}
        runs = ",".join(f"{self.sweep}-{each.number}" for each in points)
        self._send(env, job_id, command, [], {"runs": runs})

    def _send(
        self,
        env: dict[str, Any],
        job_id: str,
        command: str,
        demand: Sequence[dict[str, float]],
        facts: dict[str, str],
        **entrypoint: Any,
    ) -> None:
        run = env["env_vars"][run_folder.RUN_VARIABLE]
        submission.send(
            self.outputs,
            package.packages(env),
            entrypoint=command,
            submission_id=job_id,
            metadata=facts
            | submission.metadata(
                self.code.script, run, env["env_vars"][run_folder.COMMIT_VARIABLE], demand
            ),
            **entrypoint,
        )


def _files(env: Mapping[str, Any]) -> list[str]:
    """Keys with the name of a file as value, such as a list of packages."""
    texts = {key: text for key, text in env.items() if isinstance(text, str)}
    return [key for key, text in texts.items() if key != "working_dir" and Path(text).is_file()]


def _file(path: Path) -> tuple[int, str]:
    with path.open("rb") as opened:
        return path.stat().st_mode & 0o777, hashlib.file_digest(opened, "sha256").hexdigest()


def contains(script: Script, folder: Path) -> bool:
    """Whether a sweep's folder is within the uploaded folder.

    Raises:
        ClientError: it is the uploaded folder itself.
    """
    if script.working_dir is None:
        return False
    uploaded, results = Path(script.working_dir).resolve(), folder.resolve()
    if results == uploaded:
        raise ClientError(
            f"hydra.sweep.dir={folder} is the folder that is uploaded: give one below it, such as "
            "hydra.sweep.dir=multirun/first"
        )
    return uploaded in results.parents


def check_script(script: Script) -> None:
    """Refuses a folder that would hide Trainyard's package on the nodes.

    Raises:
        ClientError: it has a `training` of its own.
    """
    if script.working_dir is None:
        return
    theirs = scripts.own_module(Path(script.working_dir))
    if theirs is not None and theirs.resolve() != scripts.PACKAGE:
        raise ClientError(
            f"{theirs} hides Trainyard's own package of that name on the nodes: give it another "
            "name, or upload another folder with hydra.launcher.working_dir=FOLDER"
        )
