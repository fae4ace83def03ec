"""The parts of every job: a driver that starts or resumes, and workers that fail together."""

import argparse
import datetime
import http
import itertools
import json
import logging
import math
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock, call

import numpy as np
import pytest
import torch
from ray.exceptions import RayTaskError
from ray.train import ControllerError
from ray.util import get_node_ip_address
from torch import distributed
from torch._utils import ExceptionWrapper
from torch.utils.data import DistributedSampler

import trainyard
from trainyard import job, options, supervised
from trainyard.errors import JobError
from trainyard.jobs import _template
from trainyard.report import progress
from trainyard.resume import checkpoint_files, checkpoints, code_faults
from trainyard.store.objects import StorageError
from trainyard.tracking import run_folder
from trainyard.tracking.run_folder import RUN_VARIABLE, STORAGE_VARIABLE
from trainyard.tracking.runs import Run
from trainyard.user_code import name_of_main

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--workers", type=int, default=1)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--max-failures", type=int, default=3)


class Stored:
    """The checkpoints of a run of one worker, and its reports, with no Ray around it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reports: list[dict[str, Any]] = []
        self.names: list[str] = []
        self.model: dict[str, Any] = {}

    def new_folder(self) -> Path:
        folder = self.folder / f"checkpoint_{len(self.names):06d}"
        folder.mkdir()
        return folder

    def report(
        self, record: Any, folder: Path, model: Any, *, stored: Any = None, wait: bool = False
    ) -> None:
        checkpoint_files.write_manifest(folder, model)
        self.names.append(folder.name)
        self.model = model
        if stored is None:
            assert wait  # a place in an epoch, not a record of the run
            return
        self.reports.append(record)
        stored()

    @contextmanager
    def restore_newest(self, check: Any) -> Iterator[Path | None]:
        found = self.folder / self.names[-1] if self.names else None
        if found:
            check(found)
        yield found


class LeftError(Exception):
    """Replaces the wait for Ray Train, which ends a worker that left."""


@pytest.fixture
def stored(tmp_path, monkeypatch) -> Iterator[Stored]:
    context = SimpleNamespace(get_world_rank=lambda: 0, get_world_size=lambda: 1)
    monkeypatch.setattr("ray.train.get_context", lambda: context)
    monkeypatch.setattr(job, "get_device", lambda: torch.device("cpu"))
    monkeypatch.setattr(supervised, "prepare_model", lambda network: network)
    stored = Stored(tmp_path)
    for name in ("new_folder", "report", "restore_newest"):
        monkeypatch.setattr(checkpoints, name, getattr(stored, name))
    unnoticed = Mock(**{"return_value.due.return_value": None})  # no node must go
    monkeypatch.setattr(job, "Notices", unnoticed)
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield stored
    distributed.destroy_process_group()
    assert all(each == call(0, 1) for each in unnoticed.call_args_list)


def session(folder: Path, *arguments: str) -> job.Session:
    config = options.parse(_template.parser, arguments)
    return job.Session(config | {"job": "JOB", "storage": folder.as_uri(), "run": "first"})


def figures(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in record.items() if k != "minutes"} for record in records]


def test_the_job_to_begin_with_learns_and_goes_on(stored, tmp_path, monkeypatch, capsys):  # F21
    drawn = []
    monkeypatch.setattr(DistributedSampler, "set_epoch", lambda _, epoch: drawn.append(epoch))
    _template.train_worker(session(tmp_path, "--epochs", "3"))
    whole = figures(stored.reports)
    assert drawn == [0, 1, 2]
    model = trainyard.load(tmp_path / stored.names[-1], network=_template.network())
    images, labels = _template.data()[1][:]
    assert float(_template.accuracy(model(images), labels)) == pytest.approx(whole[-1]["valid_acc"])
    assert _template.predict(images.tolist(), model) == model(images).argmax(1).tolist()
    assert [record["epoch"] for record in whole] == [0, 1, 2]
    assert whole[-1]["loss"] < whole[0]["loss"] / 2
    assert whole[-1]["valid_acc"] > 0.7
    assert figures(Run(tmp_path.as_uri(), "first").metrics()) == whole
    told = [progress.parse(line) for line in capsys.readouterr().out.splitlines()]
    assert [found.record for found in told if found] == [progress.Epoch(n) for n in range(3)]

    shutil.rmtree(tmp_path / stored.names.pop())  # as if it was interrupted after the second epoch
    del stored.reports[2:]
    _template.train_worker(session(tmp_path, "--epochs", "3"))
    assert figures(stored.reports) == whole
    out = capsys.readouterr().out
    where, node = f"{tmp_path.as_uri()}/first/checkpoint_000001", get_node_ip_address()
    assert f"Restored from checkpoint {where}: 2 epochs are done, on {node}\n" in out  # D48
    found = [progress.parse(line) for line in out.splitlines()]
    assert [each.record for each in found if each] == [
        progress.Restored(where, 2, node),
        progress.Epoch(2),
    ]
    assert Run(tmp_path.as_uri(), "first").metrics()[2]["minutes"] > 0


@pytest.mark.parametrize("batch", [0, 7, 23])  # first, in the middle, after the last of 23
def test_a_notice_costs_nothing_that_was_trained(batch, stored, tmp_path, monkeypatch, capsys):
    _template.train_worker(session(tmp_path / "calm", "--epochs", "3"))
    whole = figures(stored.reports)
    stored.reports.clear()
    stored.names.clear()
    for left in tmp_path.glob("checkpoint_*"):
        shutil.rmtree(left)

    due = [*[None] * (24 + batch), "a notice"]  # 24 of the first epoch
    noticed = Mock(**{"due.side_effect": itertools.chain(due, itertools.repeat(None))})
    noticed.leave.side_effect = LeftError
    monkeypatch.setattr(job, "Notices", lambda _rank, _world: noticed)
    torch.manual_seed(8)  # of no consequence: the run has its own seed
    with pytest.raises(LeftError):
        _template.train_worker(session(tmp_path, "--epochs", "3"))
    noticed.leave.assert_called_once_with("a notice")
    assert len(stored.reports) == 1
    assert stored.model == {"job": "JOB"}
    torch.manual_seed(7)  # other workers come with other random numbers
    _template.train_worker(session(tmp_path, "--epochs", "3"))
    assert figures(stored.reports) == whole
    out = capsys.readouterr().out
    told = [found.record for line in out.splitlines() if (found := progress.parse(line))]
    assert progress.Noticed(1, batch) in told
    where, node = f"{tmp_path.as_uri()}/first/checkpoint_000001", get_node_ip_address()
    assert progress.Restored(where, 1, node, batch) in told


@pytest.mark.parametrize(
    ("workers", "size", "why"),
    [
        (2, "64", "the run had 2 workers, and has 1"),
        (1, "32", "their size was 64, and is 32"),
    ],
)
def test_a_position_of_other_workers_or_batches_is_left(  # F61
    workers, size, why, stored, tmp_path, capsys
):
    _template.train_worker(session(tmp_path, "--epochs", "1"))
    file = tmp_path / stored.names[-1] / run_folder.CHECKPOINT_FILE
    place = {"epoch": 1, "batches": 7, "batch_size": 64, "workers": [{}] * workers}
    torch.save(torch.load(file) | {"position": place}, file)
    _template.train_worker(session(tmp_path, "--epochs", "2", "--batch-size", size))
    assert [record["epoch"] for record in stored.reports] == [0, 1]
    said = f"warning: 7 batches of epoch 2 are trained twice: {why}"
    assert said in capsys.readouterr().out


FIGURES = {
    "numpy float": (np.float64(0.5), 0.5),
    "numpy int": (np.int64(3), 3),
    "numpy bool": (np.bool_(True), True),
    "numpy text": (np.str_("x"), "x"),
    "array": (np.arange(3), [0, 1, 2]),
    "tensor": (torch.tensor(2.0), 2.0),
    "tensors": ({"a": [torch.ones(2, requires_grad=True)]}, {"a": [[1.0, 1.0]]}),
    "path": (Path("a/b"), "a/b"),
    "date": (datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), "2026-01-02T00:00:00+00:00"),
    "large": (10**30, 1e30),
    "larger": (10**400, math.inf),
    "number of an enumeration": (http.HTTPStatus.OK, 200),
}


def test_figures_are_made_plain(stored, tmp_path, capsys):  # F61
    made = session(tmp_path)
    made.restore()
    given = {name: value for name, (value, _) in FIGURES.items()}
    made.report({"epoch": np.int32(0), "loss": math.nan, **given}, {"mean": np.ones(1)})
    [record] = figures(stored.reports)
    assert math.isnan(record.pop("loss"))
    assert record == {"epoch": 0} | {name: plain for name, (_, plain) in FIGURES.items()}
    assert {name: type(record[name]) for name in FIGURES} == {
        name: type(plain) for name, (_, plain) in FIGURES.items()
    }
    assert stored.model == {"mean": [1.0]}
    warnings = capsys.readouterr().out
    assert "warning: numpy float of the record is a numpy.float64: 0.5 is stored\n" in warnings
    assert "loss" not in warnings  # a plain value
    text = (tmp_path / "first" / "metrics.jsonl").read_text()
    written = json.loads(text, parse_constant=pytest.fail)  # JSON has no NaN
    assert (written["loss"], written["larger"]) == (None, None)
    again = session(tmp_path)
    again.restore()
    assert figures(again.history)[0].keys() == record.keys() | {"loss"}
    made.report({"epoch": 1, "loss": np.float64(0.5)}, {})
    assert "warning" not in capsys.readouterr().out  # only in the first epoch of a start


def test_a_record_without_its_epoch_has_the_next(stored, tmp_path, capsys):  # F74
    made = session(tmp_path)
    made.restore()
    for record in ({"loss": 1.0, "minutes": "mine"}, {"epoch": "second"}):
        made.report(record, {})
    assert [record["epoch"] for record in stored.reports] == [0, 1]
    assert isinstance(stored.reports[0]["minutes"], float)
    said = [line for line in capsys.readouterr().out.splitlines() if "warning" in line]
    assert said == [
        "warning: the record has no number `epoch`: 0 is used",
        "warning: minutes of the record are replaced by the run's: rename yours",
    ]


NO_LATER_START = r"^no later start could load the state of 'rates': "


@pytest.mark.parametrize(
    ("odd", "parts", "said"),
    [
        (object(), {}, r"^odd of an epoch's record is a builtins\.object: report numbers"),
        ({"a": [1j]}, {}, r"^odd\.a\[0\] of an epoch's record is a builtins\.complex"),
        (torch.zeros(2000), {}, "^odd of an epoch's record has 2000 values"),
        *(
            (0, {name: {"a": 1}}, f"parts {name} of the checkpoint have reserved names")
            for name in job.OWN
        ),
        *(
            (0, {"good": {"a": 1}, "rates": {"b": [value]}}, NO_LATER_START)
            for value in (np.float64(1), np.zeros(2), Path("x"))
        ),
    ],
)
def test_what_no_later_start_could_have_is_refused_by_name_in_the_first_epoch(  # F61
    odd, parts, said, stored, tmp_path
):
    made = session(tmp_path)
    made.restore()
    kept = {name: Mock(**{"state_dict.return_value": state}) for name, state in parts.items()}
    with pytest.raises(job.JobError, match=said):
        made.report({"epoch": 0, "odd": odd}, {}, **kept)
    assert stored.reports == []


@pytest.mark.parametrize(
    "state",
    [
        [],
        {"model": {}},
        {"history": [1]},
        {"history": [{"epoch": 0}]},
        {"history": [{"minutes": 0.1, "loss": torch.zeros(1)}]},
        {"history": [], "position": {"epoch": 1}},
    ],
)
def test_a_state_of_another_shape_is_a_damaged_checkpoint(state, tmp_path):  # F53
    torch.save(state, tmp_path / run_folder.CHECKPOINT_FILE)
    with pytest.raises(checkpoint_files.CheckpointError, match=run_folder.CHECKPOINT_FILE):
        job._check_state(tmp_path)


def test_a_part_that_is_new_is_named(stored, tmp_path):
    made = session(tmp_path)
    made.restore()
    made.report({"epoch": 0}, {})
    with pytest.raises(job.JobError, match="checkpoint_000000 has no scheduler: the job was chang"):
        session(tmp_path).restore(scheduler=Mock(spec=["state_dict"]))


def test_what_a_start_asks_for_counts_more_than_the_stored_state(stored, tmp_path):  # F61
    def start(rate: float, decay: float) -> Any:
        optimizer = torch.optim.AdamW([torch.ones(1)], lr=rate, weight_decay=decay)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        made = session(tmp_path)
        made.restore(optimizer=optimizer, scheduler=scheduler)
        before = optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["weight_decay"]
        optimizer.step()
        scheduler.step()
        made.report({"epoch": 0}, {}, optimizer=optimizer, scheduler=scheduler)
        return before

    assert start(0.1, 0.01) == (0.1, 0.01)
    assert start(0.1, 0.01) == (0.05, 0.01)  # as the scheduler has left it
    assert start(0.4, 0.2) == pytest.approx((0.1, 0.2))  # a quarter of what is asked for
    assert start(0.4, 0.2) == pytest.approx((0.05, 0.2))


def test_a_schedule_that_more_epochs_outlast_is_refused_before_the_first_step(  # F72
    stored, tmp_path
):
    def start(epochs: int, most: int) -> None:
        optimizer = torch.optim.SGD([torch.ones(1)], lr=0.1)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 6)
        made = session(tmp_path, "--epochs", str(epochs))
        made.restore(optimizer=optimizer, scheduler=scheduler)
        for epoch in made.epochs_left()[:most]:
            for _ in range(2):
                optimizer.step()
                scheduler.step()
            made.report({"epoch": epoch}, {}, optimizer=optimizer, scheduler=scheduler)

    start(3, 2)
    with pytest.raises(job.JobError, match=r"scheduler .* total steps is 6.* fewer epochs"):
        start(4, 0)
    start(3, 1)
    start(3, 1)  # such as for a worker that was lost at the end


@pytest.mark.parametrize(("mine", "others"), [("", "b"), ("c", ""), ("c", "b"), ("", "")])
def test_workers_fail_together(mine, others, stored, tmp_path, monkeypatch):
    def work() -> int:
        if mine:
            raise JobError(mine)
        return 3

    def gather(faults: list[str], fault: str) -> None:
        assert fault == mine
        faults[:] = [fault, others]

    monkeypatch.setattr(distributed, "all_gather_object", gather)
    first = session(tmp_path)
    if not mine + others:
        assert first.together(work) == 3
        return
    with pytest.raises(job.JobError, match=f"^{max(mine, others)}$"):
        first.together(work)


def is_number(number: object) -> bool:
    return isinstance(number, int)


def fail(_: job.Session) -> None:
    raise JobError("no images")


def test_what_a_user_can_mend_is_the_jobs_one_error(run, monkeypatch):
    failed = Mock(**{"return_value.fit.side_effect": ControllerError(JobError("no images"))})
    for name in ("TorchTrainer", "torch_config"):
        monkeypatch.setattr(job, name, failed)
    printing = [True]
    monkeypatch.setattr("ray.shutdown", printing.clear)
    with pytest.raises(SystemExit, match=r"^error: no images$"):
        job.run(fail, "mine", parser, given=[])
    assert not printing, "the workers' lines come before the message"


@pytest.mark.parametrize(
    ("given", "bundle", "said"),
    [
        ([], {"CPU": 1.0, "GPU": 1.0}, ""),
        (["--workers", "1:2"], {"CPU": 1.0, "GPU": 1.0}, ""),
        (["--cpu"], {"CPU": 1.0}, "GPU 1 of the cluster stays idle: --cpu says so"),
        (["--workers", "2"], {"CPU": 1.0}, "room for 1 of 2 workers with GPU 1, CPU 1"),
    ],
)
def test_a_job_trains_on_gpus_where_the_nodes_have_them(  # A30
    given, bundle, said, run, monkeypatch, capsys
):
    trained: dict[str, Any] = {}
    ended = SimpleNamespace(fit=lambda: SimpleNamespace(return_value=""))
    monkeypatch.setattr(job, "TorchTrainer", lambda *_, **told: trained.update(told) or ended)
    monkeypatch.setattr(job, "torch_config", lambda *, use_gpu: use_gpu)
    config = vars(_template.parser.parse_args(given))
    job.fit(_template.train_worker, run, config)
    scaling = trained["scaling_config"]
    assert scaling.resources_per_worker == bundle
    assert scaling.num_workers == {"1:2": (1, 2)}.get(config["workers"], config["workers"])
    assert trained["torch_config"] == scaling.use_gpu == ("GPU" in bundle)
    printed = capsys.readouterr().out.splitlines()
    assert [said in line for line in printed] == [True] * bool(said)


def test_workers_find_their_function(tmp_path, monkeypatch):
    assert job.by_name(is_number)(3) is True
    with pytest.raises(ValueError, match=r"<lambda> is not at the top level of its script"):
        job.by_name(lambda _: None)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "beside_it.py").write_text("WORD = 'found'\n")
    script = tmp_path / "sub" / "own_job_script.py"
    script.write_text("import beside_it\ndef train_worker(session): return beside_it.WORD\n")
    own = FunctionType((lambda _: None).__code__, {"__name__": "__main__"}, "train_worker")
    own.__qualname__ = "train_worker"
    monkeypatch.chdir(tmp_path)
    started = SimpleNamespace(__spec__=None, __file__=str(script))  # python sub/own_job_script.py
    for name in ("__main__", "__mp_main__"):
        monkeypatch.setitem(sys.modules, name, started)
    sent = job.by_name(own)
    started.__spec__ = SimpleNamespace(name="sub.own_job_script")  # python -m
    assert name_of_main() == "sub.own_job_script"
    for name in ("__main__", "__mp_main__"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))  # a worker's own
    monkeypatch.chdir("/")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])  # and not the current folder
    assert sent(None) == "found"


@pytest.fixture
def run(tmp_path, monkeypatch) -> Run:
    monkeypatch.setenv(STORAGE_VARIABLE, tmp_path.as_uri())
    monkeypatch.setenv(RUN_VARIABLE, "first")
    monkeypatch.setattr("trainyard.ray_train.connect", lambda: None)
    monkeypatch.setattr("trainyard.ray_train.nodes", lambda: [{"CPU": 8.0, "GPU": 1.0}])
    return Run(tmp_path.as_uri(), "first")


def test_a_run_begins_and_goes_on_with_its_arguments(run, monkeypatch, capsys):
    fitted: list[dict[str, Any]] = []

    def fit(_worker: Any, run: Run, config: dict[str, Any]) -> None:
        run.start(config)
        fitted.append(config)
        record = {"loss": 1.0, "train_acc": 0.5}
        run.write_metrics([record | {"epoch": epoch} for epoch in range(config["epochs"])])

    monkeypatch.setattr(job, "fit", fit)
    for given in (["--workers", "2"], ["--epochs", "3"], []):
        made = job.run(lambda _: None, "mine", parser, ("seed",), given)
        assert made.name == "first"
    expected = {"job": "mine", "epochs": 2, "workers": 2, "seed": 1, "max_failures": 3}
    assert fitted == [expected, expected | {"epochs": 3}]
    assert run.read("curves.png") is not None
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"Training completed after 2 epochs: {run.url}"
    assert said[1] == "resuming with other arguments: epochs 2 → 3"
    assert said[3].startswith("run first has finished: 3 epochs are done and 3 were asked for; ask")
    with pytest.raises(
        SystemExit, match=r"run 'first' was started with other arguments \(seed 1 → 2"
    ):
        job.run(lambda _: None, "mine", parser, ("seed",), ["--seed", "2"])
    with pytest.raises(SystemExit, match="job 'mine' → 'other'"):
        job.run(lambda _: None, "other", parser, given=[])
    assert "other arguments" not in capsys.readouterr().out


def test_an_argument_has_no_name_of_the_configuration(run):
    taken = argparse.ArgumentParser()
    taken.add_argument("--run")
    with pytest.raises(ValueError, match="configuration has run: rename"):
        job.begin("mine", taken, given=[])


@pytest.mark.parametrize("error", [job.JobError("what to do"), StorageError("what to do")])
def test_what_a_user_can_mend_is_one_line(error):
    with pytest.raises(SystemExit, match=r"^error: what to do$"), job.one_message():
        raise error


def test_without_the_client_a_run_has_a_name_of_its_own(run, monkeypatch):
    monkeypatch.delenv(RUN_VARIABLE)
    names = {job.begin("food11/train_ray", parser, given=[])[0].name for _ in range(2)}
    assert len(names) == 2
    assert all(name.startswith("food11-train-ray-") for name in names)


def leave(code: Any) -> None:
    sys.exit(code)


LEFT_AT = f"(test_job.py, line {leave.__code__.co_firstlineno + 1}: sys.exit(code))"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("bad data", "bad data"),
        (3, f"SystemExit: 3 {LEFT_AT}"),
        (JobError("do this"), f"SystemExit: do this {LEFT_AT}"),
    ],
)
def test_an_exit_in_a_worker_is_its_users_decision(code, said, monkeypatch):
    monkeypatch.setattr(job, "Session", lambda config: config)
    monkeypatch.setattr(logging.getLogger(job.RAYS_LOG_OF_ERRORS), "disabled", False)
    with pytest.raises(JobError) as caught:
        job._work(job.by_name(leave), code)
    assert str(caught.value) == said
    assert logging.getLogger(job.RAYS_LOG_OF_ERRORS).disabled
    job._work(job.by_name(leave), cast(Any, 0))


def test_a_message_of_a_loaders_or_tasks_process_comes_without_its_traceback():
    try:
        raise JobError("bad data: mend it")
    except JobError as error:
        of_loader = ExceptionWrapper(where="in a process")
        of_task = RayTaskError("f", "a traceback", error).as_instanceof_cause()
    with pytest.raises(JobError) as caught:
        of_loader.reraise()
    for each in (caught.value, of_task):
        assert code_faults.message(each) == "bad data: mend it"
