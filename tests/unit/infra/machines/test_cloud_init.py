"""User data of a rented machine: the settings of its first boot, and nothing else."""

import re
import shutil
import subprocess

import pytest
import yaml

from infra.machines import cloud_init
from infra.machines.host_key import HostKeyProvider

LOGIN = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5LOGIN"


@pytest.fixture(scope="module")
def key():
    return HostKeyProvider().create({"name": "x"}).outs


@pytest.fixture(scope="module")
def text(key):
    return cloud_init.user_data(
        host_key=key["privateKey"], host_public_key=key["publicKey"], authorized_key=LOGIN
    )


@pytest.fixture(scope="module")
def config(text):
    return yaml.safe_load(text)


def test_it_is_cloud_config_of_plain_values(text):  # F39
    assert text.startswith("#cloud-config\n")
    assert "!!" not in text
    assert len(text) < 16 * 1024  # what clouds take


def test_the_host_key_is_the_one_that_is_pinned(config, key):
    assert config["ssh_keys"] == {
        "ed25519_private": key["privateKey"],
        "ed25519_public": key["publicKey"],
    }
    assert config["ssh_deletekeys"] is True  # those of the image, which others may have too
    assert config["ssh_pwauth"] is False
    assert config["disable_root"] is True


def test_services_run_as_a_user_that_cannot_become_root(config):
    default, services = config["users"]
    assert default == "default"  # the admin, whom the cloud lets in
    assert services == {
        "name": "trainyard",
        "gecos": "Trainyard services",
        "shell": "/bin/bash",
        "lock_passwd": True,
        "ssh_authorized_keys": [LOGIN],
    }
    assert not {"sudo", "groups", "doas"} & set(services)
    for command in config["runcmd"]:
        assert not re.search(r"usermod .*\btrainyard\b|adduser|gpasswd", command)


@pytest.fixture
def first_boot(config, tmp_path, put_program):
    """Run the steps as cloud-init does, as one script; return its exit status and its log."""
    place, log = tmp_path / "bin", tmp_path / "boot.log"
    place.mkdir()
    for name, body in PROGRAMS.items():
        put_program(place, name, f'echo "{name} $*" >> {tmp_path}/calls; {body}')

    def run(**programs):
        for name, body in programs.items():
            put_program(place, name.replace("_", "-"), body)
        script = "#!/bin/sh\n" + "".join(f"{line}\n" for line in config["runcmd"])
        for there, here in (
            (cloud_init.LOG, log),
            (cloud_init.PROMETHEUS, tmp_path / "prometheus"),
            ("/usr/sbin/policy-rc.d", tmp_path / "policy-rc.d"),
            (f"\n{cloud_init.METADATA}\n", "\ntrainyard-metadata\n"),
        ):
            script = script.replace(there, str(here))
        done = subprocess.run(
            ["/bin/sh", "-c", script], env={"PATH": f"{place}:/usr/bin:/bin"}, check=False
        )
        calls = (tmp_path / "calls").read_text() if (tmp_path / "calls").exists() else ""
        return done.returncode, log.read_text(), calls

    return run


PROGRAMS = {"getent": "", "usermod": "", "apt-get": "", "trainyard-metadata": ""}


def test_the_first_boot_does_all_steps(first_boot, tmp_path):  # A19
    status, log, calls = first_boot()
    assert status == 0
    assert log.splitlines()[-1] == cloud_init.FINISHED
    assert "usermod -aG docker ubuntu" in calls
    assert re.search(r"apt-get install .* prometheus python3-venv", calls)
    assert not (tmp_path / "policy-rc.d").exists()
    assert (tmp_path / "boot.log").stat().st_mode & 0o777 == 0o644  # the services' user shows it


def test_an_image_without_docker_has_no_group_to_join(first_boot):  # A19
    status, _, calls = first_boot(getent="exit 2")
    assert status == 0
    assert "usermod" not in calls


def test_lists_of_packages_may_be_old(first_boot):
    status, log, _ = first_boot(apt_get='[ "$1" = install ]')
    assert status == 0
    assert "apt-get update failed" in log


@pytest.mark.parametrize(
    ("programs", "told"),
    [
        ({"trainyard_metadata": "exit 2"}, "closing the metadata service failed with status 2"),
        ({"usermod": "exit 6"}, "adding ubuntu to the group docker failed with status 6"),
        ({"apt_get": "echo no network; exit 100"}, "installing Prometheus failed with status 100"),
    ],
)
def test_a_step_that_fails_fails_the_first_boot_and_says_so(first_boot, programs, told):  # A19
    status, log, _ = first_boot(**programs)
    assert status != 0
    assert log.splitlines()[-1] == told
    assert cloud_init.FINISHED not in log


def test_cron_runs_the_timer_once_it_is_there(config):
    files = {file["path"]: file for file in config["write_files"]}
    cron = files["/etc/cron.d/trainyard-ttl"]
    timer, closed = (f"/usr/local/sbin/trainyard-{name}" for name in ("ttl", "metadata"))
    assert cron["content"].splitlines() == [
        f"* * * * * root [ ! -x {timer} ] || {timer}",
        f"* * * * * root {closed}",
    ]
    assert cron["permissions"] == "0644"  # cron ignores one that others may write to
    metadata = files["/usr/local/sbin/trainyard-metadata"]
    assert metadata["permissions"] == "0755"
    assert set(files) == {metadata["path"], cron["path"]}


def test_the_host_key_is_its_only_secret(text, config, key):  # F35
    assert text.count("PRIVATE KEY") == 2  # begin and end
    assert set(config) == {
        *("ssh_deletekeys", "ssh_keys", "ssh_pwauth", "disable_root"),
        *("users", "write_files", "runcmd"),
    }


def test_commands_of_the_first_boot_are_posix_shell(config):
    script = "\n".join(config["runcmd"])
    subprocess.run(["/bin/sh", "-n"], input=script, text=True, check=True)
    if checker := shutil.which("shellcheck"):
        arguments = [checker, "--shell=sh", "--severity=warning", "-"]
        subprocess.run(arguments, input=script, text=True, check=True)
