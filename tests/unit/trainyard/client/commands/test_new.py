"""`train new`: a job to begin with."""

from pathlib import Path

import pytest

from trainyard import options
from trainyard.client import scripts
from trainyard.client.commands import new
from trainyard.client.errors import ClientError
from trainyard.serving import uploaded


def test_a_job_is_written_and_the_next_command_told(tmp_path, monkeypatch, train):
    monkeypatch.chdir(tmp_path)
    assert train("new", "my_job") == 0
    assert train.out.splitlines() == [
        "wrote my_job.py",
        "submit it: train submit my_job.py --name my-job-1",
    ]
    text = (tmp_path / "my_job.py").read_text()
    assert 'job.run(train_worker, "my_job", parser' in text
    assert "\ntrain submit my_job.py --name first -- --epochs 10 " in text
    assert "JOB" not in text
    assert len(text.splitlines()) <= 40
    assert uploaded.entry(text.encode()) == uploaded.PREDICT
    script = scripts.find("my_job.py")
    assert script.module == scripts.PACKAGE
    gpus = [{"CPU": 1.0, "GPU": 1.0}] * 2
    assert options.request(scripts.config(script, []), []) == [{"CPU": 1.0}]
    assert options.request(scripts.config(script, ["--workers", "2"]), gpus) == gpus


def test_in_a_checkout_it_is_a_job_by_name(tmp_path, monkeypatch):
    jobs = tmp_path / "training"
    jobs.mkdir()
    (tmp_path / "trainyard").mkdir()
    (tmp_path / "trainyard" / "jobs").symlink_to(jobs)
    monkeypatch.chdir(tmp_path)
    path, command = new.write("my_job")
    assert path == Path("training/my_job.py")
    # Of another checkout than the client's: by its path.
    assert command == "train submit training/my_job.py --name my-job-1"
    monkeypatch.setattr(scripts, "JOBS", jobs)
    assert new.write("other")[1] == "train submit other --name other-1"
    assert scripts.find("other").command == ("python", "-m", "trainyard.jobs.other")


def test_a_folder_can_be_given(tmp_path):
    folder = tmp_path / "my jobs"
    folder.mkdir()
    path, command = new.write("my_job", folder)
    assert path == folder / "my_job.py"
    assert command == f"train submit '{path}' --name my-job-1"


def test_what_is_there_is_not_overwritten(tmp_path):
    (tmp_path / "my_job.py").write_text("mine")
    with pytest.raises(ClientError, match=r"my_job\.py is there already and is not overwritten"):
        new.write("my_job", tmp_path)
    assert (tmp_path / "my_job.py").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "is not 1 to 50 lower-case"),
        ("My-Job", "is not 1 to 50 lower-case"),
        ("../job", "is not 1 to 50 lower-case"),
        ("_job", "is not 1 to 50 lower-case"),
        ("torch", "a Python module is called 'torch', which the job would hide"),
        ("fine", r"cannot write .*nowhere/fine\.py \(No such file or directory\)"),
    ],
)
def test_what_cannot_be_written_is_one_message(name, message, tmp_path):
    with pytest.raises(ClientError, match=message):
        new.write(name, tmp_path / "nowhere")


def test_the_template_is_no_job_itself():
    assert "_template" not in scripts.names()
    with pytest.raises(ClientError, match="no job is called '_template'"):
        scripts.find("_template")
