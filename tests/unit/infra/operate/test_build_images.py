"""Images for a registry: what is built and pushed, and the setting that names them."""

import os
import sys
from pathlib import Path

import pytest
import yaml

from infra.operate import build_images
from infra.settings import versions

REGISTRY = "registry.example:5000/team/trainyard"


@pytest.fixture
def docker(tmp_path, monkeypatch):
    """The calls of a docker that does nothing, but fails if the file `fails` exists."""
    program, asked = tmp_path / "docker", tmp_path / "asked"
    program.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$*" >>{asked}\necho noise\ntest ! -e {tmp_path}/fails\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return asked


def _built(capfd, *arguments):
    code = build_images.main([REGISTRY, *arguments])
    printed = capfd.readouterr()
    return code, yaml.safe_load(printed.out), printed.err


def test_all_arguments_are_given_and_the_setting_is_printed(docker, capfd):
    base = ("--build-arg", "BASE_IMAGE=ubuntu:24.04")
    code, said, _ = _built(capfd, "versitygw", "jupyter", *base, "--push")
    assert code == 0
    names = said["trainyard:images"]
    assert [*names] == ["versitygw", "jupyter"]
    lines = docker.read_text().splitlines()
    assert [line for line in lines if line.startswith("push")] == [
        f"push {name}" for name in names.values()
    ]
    store, notebook = (line for line in lines if line.startswith("build"))
    assert f"--build-arg=VERSITYGW_VERSION={versions.VERSITYGW}" in store
    assert f"--build-arg=VERSITYGW_SUM={versions.VERSITYGW_SUM}" in store
    assert "--build-arg=BASE_IMAGE=ubuntu:24.04" in notebook
    assert f"--tag={names['jupyter']}" in notebook
    assert Path(notebook.split()[-1], "train", "training").is_dir()


def test_the_base_is_that_of_the_clients_python(docker, capfd):
    _built(capfd, "ray")
    _built(capfd, "ray", "--python", "3.13")
    here, newer = docker.read_text().splitlines()
    base = versions.IMAGE_BASES[f"{sys.version_info.major}.{sys.version_info.minor}"]
    assert f"--build-arg=BASE_IMAGE={base} " in here
    assert "--build-arg=BASE_IMAGE=debian:trixie-slim " in newer
    assert "--build-arg=IMAGE_PYTHON=3.13 " in newer  # which the build compares with the base's


def test_a_tag_follows_from_what_an_image_is_built_of(docker, capfd):
    first, again, other = (
        _built(capfd, "ray", *more)[1]["trainyard:images"]["ray"]
        for more in ((), (), ("--build-arg", "TORCH_BACKEND=cpu"))
    )
    assert first == again
    assert first.startswith(f"{REGISTRY}/ray:")
    assert other != first
    assert "push" not in docker.read_text()


def test_a_build_that_fails_prints_no_setting(docker, capfd):
    (docker.parent / "fails").touch()
    code, said, err = _built(capfd, "ray")
    assert (code, said) == (1, None)
    assert "error: docker build failed, for the reason above" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([REGISTRY, "grafana"], "unknown program grafana: it is one of"),
        ([REGISTRY, "ray", "--build-arg", "PYTHON=3"], "unknown build argument PYTHON"),
        (["https://registry.example", "ray"], "must be [host[:port]/]folder"),
    ],
)
def test_a_fault_is_one_message(docker, capfd, arguments, said):
    with pytest.raises(SystemExit):
        build_images.main(arguments)
    assert said in capfd.readouterr().err
    assert not docker.exists()


def test_a_machine_without_docker_is_told(monkeypatch, tmp_path, capfd):
    monkeypatch.setenv("PATH", str(tmp_path))
    code, _, err = _built(capfd, "ray")
    assert code == 1
    assert "no docker on PATH: install a Docker Engine" in err
