"""User data of a rented machine: what its first boot is told, and nothing else."""

import re
import shutil
import subprocess

import pytest
import yaml

from infra.hosts import cloud_init
from infra.hosts.host_key import HostKeyProvider

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


def test_the_admin_may_use_docker(config):  # A19
    (command,) = [line for line in config["runcmd"] if "docker" in line]
    assert "usermod -aG docker ubuntu" in command


def test_the_timer_is_there_from_the_first_boot(config):
    files = {file["path"]: file for file in config["write_files"]}
    script = files["/usr/local/sbin/trainyard-ttl"]
    assert script["content"] == cloud_init.SCRIPT.read_text()
    assert script["permissions"] == "0755"
    cron = files["/etc/cron.d/trainyard-ttl"]
    assert cron["content"] == "* * * * * root /usr/local/sbin/trainyard-ttl\n"
    assert cron["permissions"] == "0644"  # cron ignores one that others may write to
    assert set(files) == {script["path"], cron["path"]}


def test_the_host_key_is_its_only_secret(text, config, key):  # F35
    assert text.count("PRIVATE KEY") == 2  # begin and end
    assert set(config) == {
        *("ssh_deletekeys", "ssh_keys", "ssh_pwauth", "disable_root"),
        *("users", "write_files", "runcmd"),
    }


def test_commands_of_the_first_boot_are_posix_shell(config):
    for command in config["runcmd"]:
        subprocess.run(["/bin/sh", "-n"], input=command, text=True, check=True)
        if checker := shutil.which("shellcheck"):
            arguments = [checker, "--shell=sh", "--severity=warning", "-"]
            subprocess.run(arguments, input=command, text=True, check=True)
