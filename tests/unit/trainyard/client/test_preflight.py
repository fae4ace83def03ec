"""Checks before a submission, except those of the store."""

import dataclasses
import importlib.metadata
import sys

import pytest

from trainyard.client import jobs, preflight
from trainyard.client.errors import ClientError
from trainyard.client.job_server import Job, Status

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def same(stack):
    return dataclasses.replace(
        stack, ray_version=importlib.metadata.version("ray"), python_version=HERE
    )


def test_equal_versions_pass(same):
    preflight.check_versions(same)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ray_version": "2.7.0"}, r"Ray \d.* here, 2\.7\.0 there"),
        ({"python_version": "3.8"}, rf"Python {HERE} here, 3\.8 there"),
    ],
)
def test_other_versions_name_both(change, message, same):
    with pytest.raises(ClientError, match=message):
        preflight.check_versions(dataclasses.replace(same, **change))


def test_a_secret_in_the_environment_is_refused(stack):  # F35
    env = {"env_vars": {"TOKEN": "x canary-token-0123456789"}, "excludes": []}
    with pytest.raises(ClientError, match=r"variable TOKEN .* holds a secret") as caught:
        preflight.check_runtime_env(env, stack)
    assert "canary" not in str(caught.value)


def test_every_package_is_looked_at(stack, tmp_path):  # F35
    for name in ("work", "module"):
        (tmp_path / name).mkdir()
    env = {
        "working_dir": str(tmp_path / "work"),
        "py_modules": ["s3://bucket/m.zip", str(tmp_path / "module")],
        "excludes": [],
    }
    preflight.check_runtime_env(env, stack)
    (tmp_path / "module" / "notes").write_text("the key is canary-secret-0123456789.")
    with pytest.raises(ClientError, match=r"notes in the upload of .*module holds a secret"):
        preflight.check_runtime_env(env, stack)
    with pytest.raises(ClientError, match="is not a folder"):
        preflight.check_runtime_env({"working_dir": str(tmp_path / "no"), "excludes": []}, stack)


def test_modules_that_ray_takes_pass(stack, tmp_path):  # F60
    for name in ("a.py", "b-1-py3-none-any.whl", "c.txt"):
        (tmp_path / name).touch()
    modules = [str(tmp_path / name) for name in ("a.py", "b-1-py3-none-any.whl")]
    preflight.check_runtime_env({"py_modules": modules}, stack)
    with pytest.raises(ClientError, match=r"c\.txt is not a folder: .* wheels"):
        preflight.check_runtime_env({"py_modules": [str(tmp_path / "c.txt")]}, stack)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"pip": {"package": ["x"]}}, "can only have these fields"),
        ({"pip": ["x"], "conda": {}}, "cannot be specified at the same time"),
        ({"config": {"setup_timeout_seconds": "9"}}, "must be of type int"),
    ],
)
def test_what_ray_refuses_is_refused_before_the_upload(wrong, said, stack):  # F60
    with pytest.raises(ClientError, match=f"is not one of Ray's: .*{said}"):
        preflight.check_runtime_env({"excludes": []} | wrong, stack)


def test_a_list_that_is_missing_or_no_text_is_named(stack, tmp_path):  # F76
    file = tmp_path / "requirements.txt"
    said = r"cannot read pip of .*requirements\.txt"
    with pytest.raises(ClientError, match=said):
        preflight.check_runtime_env({"pip": str(file)}, stack)
    file.write_bytes(b"humanize \xe9")
    with pytest.raises(ClientError, match=said):
        preflight.check_runtime_env({"pip": str(file)}, stack)
    file.write_text("humanize\n", encoding="utf-16")
    preflight.check_runtime_env({"pip": str(file)}, stack)


def test_a_run_of_another_user_is_not_gone_on_with_silently(stack, monkeypatch):  # F57
    found = [
        Job(status=Status("SUCCEEDED"), metadata={"run": "first", "user": owner})
        for owner in ("ada", "bob")
    ]
    monkeypatch.setattr(jobs, "connect", lambda _: None)
    monkeypatch.setattr(jobs, "submissions", lambda _: found)
    for run, owner in (("first", "ada"), ("first", ""), ("second", "bob")):
        preflight._connect_for(run, stack, owner)
    with pytest.raises(ClientError, match=r"last trained by ada, not by bob: .* with --force"):
        preflight._connect_for("first", stack, "bob")


def test_all_faults_come_in_one_message(stack):
    other = dataclasses.replace(stack, ray_version="2.7.0", storage_url="gs://b")
    env = {"working_dir": "/nowhere", "excludes": []}
    with pytest.raises(ClientError) as caught:
        preflight.run(env, "run", other)
    lines = str(caught.value).splitlines()
    assert len(lines) == 4
    for word in ("no job server answers", "2.7.0 there", "gs://b", "/nowhere"):
        assert any(word in line for line in lines)
