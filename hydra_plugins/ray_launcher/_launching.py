"""From Hydra's points to a sweep of the client's."""

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
from hydra.core.utils import JobReturn, configure_log, setup_globals
from hydra.errors import CompactHydraException
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from hydra_plugins.ray_launcher import _composed as composed
from hydra_plugins.ray_launcher._composed import ComposedPoint
from hydra_plugins.ray_launcher._config import Direction, RayLauncherConf, Unit
from hydra_plugins.ray_launcher._once import Once
from trainyard.access.terminal import clean_lines
from trainyard.client import connection, scripts, submission, unreachable
from trainyard.client import outputs as contract
from trainyard.client.command import INTERRUPTED
from trainyard.client.commands import attach
from trainyard.client.console import say, warn
from trainyard.client.errors import ClientError
from trainyard.client.sweep import report, upload
from trainyard.client.sweep.queueing import LetGoError
from trainyard.client.sweep.records import Records
from trainyard.client.sweep.run import Sweep
from trainyard.client.sweep.upload import Code, Upload
from trainyard.sweep import points as sent_points

OTHER_RAY = "ray"  # the name in messages of a Ray that the environment names


@dataclass(frozen=True)
class Task:
    """Hydra's arguments for a launcher."""

    context: HydraContext
    loader: Once
    function: TaskFunction
    config: DictConfig


def launch(
    settings: Mapping[str, Any], task: Task, batch: Sequence[Sequence[str]], first: int
) -> list[JobReturn]:
    """Runs the points of a batch.

    Raises:
        CompactHydraException: with one message for the user.
        SystemExit: 130, the user pressed Ctrl-C.
    """
    known = RayLauncherConf.__dataclass_fields__.keys() - {"_target_"}
    if unknown := settings.keys() - known:
        raise CompactHydraException(
            f"error: hydra.launcher has no {', '.join(sorted(unknown))}: its settings are "
            f"{', '.join(sorted(known))}"
        )
    setup_globals()
    configure_log(task.config.hydra.hydra_logging, task.config.hydra.verbose)
    try:
        return _launch(settings, task, batch, first)
    except ClientError as error:
        raise CompactHydraException(f"error: {clean_lines(error)}") from None
    except LetGoError as let_go:
        _tell_how_to_go_on(let_go, task.config, _other_ray(settings))
        sys.exit(INTERRUPTED)
    except Exception as error:
        message = unreachable.explained(error)
        if message is None:
            raise
        raise CompactHydraException(f"error: {clean_lines(message)}") from None


def _launch(
    settings: Mapping[str, Any], task: Task, batch: Sequence[Sequence[str]], first: int
) -> list[JobReturn]:
    imported = submission.prepare()
    script = _script(task.function, settings["working_dir"])
    upload.check_script(script)
    folder = Path(task.config.hydra.sweep.dir)
    is_uploaded = upload.contains(script, folder)
    file = settings["outputs"]
    if url := _other_ray(settings):
        say(f"no stack is chosen: points go to {url}, as RAY_ADDRESS or RAY_IP says")
        outputs, _ = attach.described(OTHER_RAY, url)
    else:
        outputs = contract.read(settings["stack"], Path(file) if file else None)
    imported.result()
    gc.freeze()  # imports stay: collections, and the last at exit, take much less
    with ExitStack() as held:
        name = submission.default_run_name(script)
        records = held.enter_context(Records(folder, name))
        if is_uploaded:
            records.leave_out()
        above = Path(tempfile.mkdtemp(prefix="trainyard-sweep-"))
        held.callback(shutil.rmtree, above)
        code = Code(script=script, copies=above, secrets=outputs.secrets)
        points = composed.compose(task.loader, task.config, batch, first, code.digest)
        if aside := records.take_up([each.point for each in points], name):
            say(
                f"{folder} had another sweep, which is in {aside} now with its results; "
                "`train list` shows whether jobs of it still run"
            )
        metric = settings["metric"]
        mode = "max" if settings["direction"] is Direction.maximize else "min"
        records.rank({metric: mode} if metric else {})
        sent = Upload(
            code=code,
            points=_pickled(above, task, script, points, records.name),
            sweep=records.name,
            outputs=(outputs := held.enter_context(connection.to(outputs)).outputs),
        )
        as_tasks = settings["unit"] is Unit.task
        sweep = Sweep([each.point for each in points], records, outputs, sent, as_tasks)
        outcomes = sweep.run()
        ended = [(each.point, outcome) for each, outcome in zip(points, outcomes, strict=True)]
        told = report.with_others(ended, records.all())
        records.rank({report.print_report(told, folder, metric, mode): mode})
    for each, outcome in ended:
        if outcome.error:
            warn(f"failed: {each.label}: {outcome.error}")
    return [
        composed.returned(each, outcome) for each, outcome in zip(points, outcomes, strict=True)
    ]


def _other_ray(settings: Mapping[str, Any]) -> str:
    """The address of a Ray that the environment names; "" if a stack is chosen, or without one."""
    variables = (os.environ.get(each) for each in (contract.STACK_VARIABLE, contract.FILE_VARIABLE))
    chosen = any((settings["stack"], settings["outputs"], *variables))
    return "" if chosen else attach.of_environment()


def _script(function: TaskFunction, working_dir: str | None) -> scripts.Script:
    name = getattr(function, "__module__", None) or type(function).__module__
    file = getattr(sys.modules[name], "__file__", None)
    if file is None:
        raise ClientError("this is not a script: put the function into a .py file and run that")
    return scripts.find(file, working_dir)


def _pickled(
    above: Path, task: Task, script: scripts.Script, points: Sequence[ComposedPoint], sweep: str
) -> Path:
    """A folder with all points, for the upload."""
    folder = above / sent_points.PACKAGE
    folder.mkdir()
    configs = {each.point.number: composed.sendable(each.config) for each in points}
    packed = sent_points.Points(
        sweep=sweep,
        function=_by_name(task.function, script) or task.function,
        context=task.context,
        state=composed.state(),
        configs=configs,
    )
    # Configurations keep the types of this plugin, and nodes do not have it.
    cloudpickle.register_pickle_by_value(sys.modules[__package__])
    try:
        (folder / sent_points.FILE).write_bytes(cloudpickle.dumps(packed))
    except (TypeError, AttributeError, ValueError) as error:
        raise ClientError(
            f"the function cannot be sent to the cluster ({error}): make what it uses inside it, "
            "or in a module of its own"
        ) from None
    return folder


def _by_name(function: TaskFunction, script: scripts.Script) -> sent_points.ScriptFunction | None:
    """The function by its name; None if it is not one of the script that was started."""
    name = getattr(function, "__name__", "")
    there, layers = getattr(sys.modules["__main__"], name, None), 0
    while there is not None and there is not function:
        there, layers = getattr(there, "__wrapped__", None), layers + 1
    return None if there is None else sent_points.ScriptFunction(script.command, name, layers)


def _tell_how_to_go_on(let_go: LetGoError, config: DictConfig, url: str) -> None:
    say(f"\ndetached; {len(let_go.jobs)} jobs keep running")
    follow, stop = "train logs -f", "train stop"
    if url:  # `train` does not follow the environment
        follow, stop = (f"ray job {each} --address {url}" for each in ("logs -f", "stop"))
    for job_id in let_go.jobs:
        say(f"  follow: `{follow} {job_id}`; stop: `{stop} {job_id}`")
    if let_go.waiting:
        say(f"{let_go.waiting} points were in the queue and are not sent")
    say(f"go on: the same command again, with hydra.sweep.dir={config.hydra.sweep.dir}")
