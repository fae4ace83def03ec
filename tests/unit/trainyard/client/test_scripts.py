"""From the JOB of a command line to a script."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import ran
from trainyard import options
from trainyard.client import feasibility, scripts, submission
from trainyard.client.errors import ClientError
from trainyard.client.outputs import Node

REPOSITORY = Path(__file__).resolve().parents[4]
NODE: dict[str, Any] = {"name": "n", "group": "", "memory_mib": 1024, "object_store_mib": 128}
NODE |= {"resources": {}}


def asked(
    script: scripts.Script, arguments: Sequence[str], *nodes: dict[str, float]
) -> list[dict[str, float]]:
    return options.request(scripts.config(script, arguments), nodes)


def test_a_job_in_a_folder_of_the_package():
    script = scripts.find("food11/train_ray")
    assert script.command == ("python", "-m", "trainyard.jobs.food11.train_ray")
    assert script.module == REPOSITORY / "trainyard"
    assert script.name == "food11-train_ray"  # a run is named by it
    assert scripts.find(str(REPOSITORY / "training/food11/train_ray.py")) == script
    assert {"alexnet", "food11/train_ray", "food11/train_tune"} <= set(scripts.names())


def test_an_own_script_takes_its_folder_along(tmp_path):
    (tmp_path / "mine.py").touch()
    script = scripts.find(str(tmp_path / "mine.py"))
    assert script.command == ("python", "mine.py")
    assert script.working_dir == str(tmp_path)
    assert script.module == scripts.PACKAGE  # which records the run


@pytest.mark.parametrize("given", ["job.py", "linked/job.py"])
def test_a_script_may_be_a_link_in_the_working_directory(given, tmp_path, monkeypatch):
    here, other = tmp_path / "here", tmp_path / "other"
    here.mkdir()
    other.mkdir()
    (other / "job.py").write_text("import json\n")
    (here / "job.py").symlink_to("../other/job.py")
    (here / "linked").symlink_to("../other")
    monkeypatch.chdir(here)
    script = scripts.find(given, ".")
    assert script.command == ("python", given)
    submission.runtime_env(None, script, "first", progress=False)


def test_an_own_script_below_the_working_directory(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "mine.py").touch()
    script = scripts.find(str(tmp_path / "a" / "mine.py"), str(tmp_path))
    assert script.command == ("python", "a/mine.py")
    with pytest.raises(ClientError, match="is not in the working directory"):
        scripts.find(str(tmp_path / "a" / "mine.py"), str(tmp_path / "b"))
    with pytest.raises(ClientError, match="is an address"):
        scripts.find(str(tmp_path / "a" / "mine.py"), "s3://bucket/code.zip")


@pytest.mark.parametrize(
    ("job", "arguments", "expected"),
    [
        ("train_lightning", [], []),
        ("train_ray", [], [{"GPU": 1.0, "CPU": 8.0}]),  # D41
        ("train_ray", ["--num-workers", "2"], [{"GPU": 1.0, "CPU": 8.0}] * 2),  # D43
        ("train_fault_tolerant", ["--gpus-per-worker", "0"], [{"CPU": 8.0}]),
        ("train_tune", [], [{"GPU": 0.25, "CPU": 2.0}]),
    ],
)
def test_the_course_tells_what_it_needs(job, arguments, expected):
    assert asked(scripts.find(f"food11/{job}"), arguments) == expected


def test_the_search_of_the_course_starts_eight_trials():  # D54
    bundles = asked(scripts.find("food11/train_tune"), [])
    course = [{"CPU": 0.0}, *[{"CPU": 8.0, "GPU": 1.0}] * 2]
    config = scripts.config(scripts.find("food11/train_tune"), [])
    assert config["num_samples"] == 16
    nodes = [Node(**NODE, cpus=each["CPU"], gpus=each.get("GPU", 0)) for each in course]
    assert feasibility.shortfall(bundles * 8, nodes) is None
    assert feasibility.shortfall(bundles * 9, nodes)


@pytest.mark.parametrize(
    "job",
    ["alexnett", "food11", "food11/train", "", "__init__x", "$(touch pwn)", "../secret", "a.py"],
)
def test_what_is_no_job_is_one_message(job):  # F39
    with pytest.raises(ClientError, match=r"jobs are .*alexnet.*, or the path of a \.py file"):
        scripts.find(job)


def test_a_near_miss_is_suggested():
    with pytest.raises(ClientError, match="did you mean 'alexnet'"):
        scripts.find("alexnett")


def test_alexnet_tells_what_it_needs():
    script = scripts.find("alexnet")
    gpu, arguments = {"CPU": 3.0, "GPU": 1.0}, ["--workers", "2", "--cpus-per-worker", "3"]
    assert asked(script, []) == asked(script, ["--cpu"], gpu) == [{"CPU": 1.0}]
    assert asked(script, arguments, gpu, gpu) == [gpu] * 2
    assert asked(script, arguments, gpu) == [{"CPU": 3.0}] * 2  # no node has the second


@pytest.mark.parametrize(
    ("job", "arguments"),
    [
        ("alexnet", ["--epochs", "0"]),
        ("alexnet", ["--data", "mnist"]),
        ("alexnet", ["--images", "here"]),
        ("food11/train_tune", ["--images", "here"]),
        ("alexnet", ["--what"]),
        ("food11/train_lightning", ["--batch-size", "0"]),
        ("food11/train_ray", ["--gpus-per-worker", "-1"]),
        ("food11/train_fault_tolerant", ["--dropout-probability", "1.5"]),
        ("food11/train_tune", ["--lr", "nan"]),
    ],
)
def test_bad_job_arguments_end_before_anything_is_sent(job, arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        scripts.config(scripts.find(job), arguments)
    assert caught.value.code == 2
    [line] = [line for line in capsys.readouterr().err.splitlines() if "error: " in line]
    assert arguments[0] in line


def test_asking_jobs_loads_neither_torch_nor_ray():
    code = (
        "import sys; from trainyard.client import scripts;"
        "given = {'cpu_example': ['8'], 'tpu_example': ['8']};"
        "[scripts.config(scripts.find(job), given.get(job, [])) for job in scripts.names()];"
        "sys.exit(', '.join({'torch', 'ray', 'boto3', 'pyarrow'} & sys.modules.keys()) or 0)"
    )
    result = ran.run([sys.executable, "-c", code], cwd=REPOSITORY)
    assert result.returncode == 0, result.stderr


def demand(path: Path, text: str, *arguments: str) -> list[dict[str, float]]:
    path.write_text(text)
    return asked(scripts.find(str(path)), arguments)


PLAIN = """
import argparse
import nowhere_to_be_found
import ray
from trainyard import job, options
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("images", nargs="+")
parser.add_argument("--workers", "-w", type=options.at_least(1), default=2, help="50 %% of all")
parser.add_argument("--cpus-per-worker", type=int, choices=[1, 3], default=3, metavar="N")
def main():
    job.run(print, "mine", parser)
raise SystemExit("was run")
"""


def test_an_own_script_is_read_and_not_run(tmp_path, capsys):
    path = tmp_path / "mine.py"
    assert demand(path, "raise SystemExit('was run')\n", "what it", "likes") == []
    assert demand(path, PLAIN, "a", "b", "-w", "1") == [{"CPU": 3}]
    assert demand(path, PLAIN, "--cpus-per-worker=1", "--", "-a") == [{"CPU": 1}] * 2
    for bad in (["a", "--workers", "0"], [], ["a", "--gpus"], ["a", "--cpus-per-worker", "2"]):
        with pytest.raises(SystemExit) as caught:
            demand(path, PLAIN, *bad)
        assert caught.value.code == 2
    with pytest.raises(SystemExit):
        demand(path, PLAIN, "--help")
    said = capsys.readouterr()
    where = f"train submit {path} -- --help` has them all\n"
    assert "error: argument --workers/-w: 0 is less than 1: `" in said.err
    assert said.err.count(where) == 4
    assert "usage: " not in said.err
    assert f"usage: train submit {path} --" in said.out
    assert "50 % of all" in said.out
    ours = PLAIN.replace("import job,", "import").replace("job.run(", "recorded_run(")
    with pytest.raises(SystemExit):
        demand(path, f"from trainyard.driver import recorded_run\n{ours}", "--what")
    assert demand(path, f"from mine import recorded_run\n{ours}", "--what") == []
    named = PLAIN.replace("choices=[1, 3]", "choices=COUNTS")
    assert demand(path, f"COUNTS = (1, 3)\n{named}", "a") == [{"CPU": 3}] * 2
    assert demand(path, f"COUNTS = (1, 3)\n{named}COUNTS = ()\n", "--what") == []
    assert demand(path, f"COUNTS = [1, 3]\nCOUNTS.append(5)\n{named}", "--what") == []
    # `--workers` of a script that does not use Ray are processes on one node.
    assert demand(path, PLAIN.replace("import ray\nfrom trainyard", "from mine"), "a") == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("choices=[1, 3]", "choices=list(range(4))"),
        ("type=int", "type=argparse.FileType()"),  # would open a file of this machine
        ("type=int", "type=lambda text: int(text)"),
        ("type=int", "type=int, **more"),
        ("from trainyard import job, options", "from mine import job, options"),
        ("description=__doc__", "parents=[other]"),
        ("description=__doc__", "fromfile_prefix_chars='-'"),
        ("description=__doc__", "exit_on_error=False"),
        ("description=__doc__", "formatter_class=mine"),
        ("def main():", "def main():\n    parser.add_argument('--what')"),
        ("def main():", "def main(parser=parser):"),
        ("def main():", "sub = parser.add_subparsers()\ndef main():"),
        ("def main():", "group = parser.add_mutually_exclusive_group()\ndef main():"),
        ("def main():", "add_more(parser)\ndef main():"),
        ("def main():", "parser.set_defaults(images=['a'])\ndef main():"),
        ("def main():", "if more:\n    parser.add_argument('--what')\ndef main():"),
        ("def main():", "import sys; sys.argv.remove('--what')\ndef main():"),
        ("def main():", "from sys import argv; argv.remove('--what')\ndef main():"),
        ("def main():", "mine = argparse.ArgumentParser()\ndef main():"),
        ("def main():", "def main():\n    mine = argparse.ArgumentParser()"),
        ("def main():", "parser.add_argument('--help')\ndef main():"),
        ('job.run(print, "mine", parser)', "parser.parse_known_args()"),
        ('job.run(print, "mine", parser)', "parser.parse_args(['a'])"),
        ('job.run(print, "mine", parser)', "typer.run(print)"),
        ('help="50 %%', 'help="50 %'),
    ],
)
def test_a_script_that_may_accept_more_is_not_refused(old, new, tmp_path):
    assert old in PLAIN
    assert demand(tmp_path / "mine.py", PLAIN.replace(old, new), "--what") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import torch, trainyard.options\nfrom trainyard.data import digits", False),
        ("import rayon\nfrom . import ray", False),
        ("from ray import tune", True),
        ("def main():\n    import ray.train", True),
        ("from trainyard import data, job", True),
        ("from trainyard.search.recorded import recorded_search", True),
        ("import deep.inner", True),
        ("from deep import inner", True),
        ("import flat", True),
        ("import other", False),
    ],
)
def test_a_script_that_uses_the_cluster_is_known(text, expected, tmp_path):
    modules = {
        "deep/__init__.py": "from . import inner",
        "deep/inner.py": "from .. import far",
        "far.py": "import ray",
        "flat.py": "from deep.inner import x\nimport job",
        "other.py": "import other, nowhere",
        "job.py": text,
    }
    for name, content in modules.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert scripts.is_driver(scripts.find(str(tmp_path / "job.py"))) is expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("from trainyard.jobs.food11 import train_ray", True),
        ("from trainyard.jobs import chargpt", True),
        ("import trainyard.jobs.train_model", False),
        ("from trainyard.models import resnet", False),
    ],
)
def test_a_script_made_of_a_job_is_what_the_job_is(tmp_path, line, expected):
    (tmp_path / "mine.py").write_text(f"{line}\n")
    assert scripts.is_driver(scripts.find(str(tmp_path / "mine.py"))) is expected


def test_jobs_that_compute_in_their_own_process_are_known():
    plain = [job for job in scripts.names() if not scripts.is_driver(scripts.find(job))]
    assert plain == ["food11/train_lightning", "train_lightning", "train_model"]


def test_a_users_own_module_of_our_packages_name_stays_the_users(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("import trainyard.job\n")
    assert scripts.find(str(path)).module == scripts.PACKAGE
    (tmp_path / "trainyard").mkdir()  # one of the user
    assert scripts.find(str(path)).module is None


def test_a_script_that_cannot_be_read_is_one_message(tmp_path):
    with pytest.raises(ClientError, match=r"bad\.py, line 1: invalid syntax"):
        demand(tmp_path / "bad.py", "def :\n")
