"""A GPU box from nothing: a Debian with systemd, set up as the page says, trains and restarts."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests import pages, pip_index, ran
from tests.fakes.machines import Machines, NoMachinesError
from tests.fakes.sshd import Sshd
from tests.waiting import wait_for
from trainyard.quickstart import init

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[3]
(SET_UP,) = pages.read_by(__file__)
ADDRESS = "192.0.2.7"  # of the page's box
# Now and at each later boot: the packages on the box are links into the cache.
USER_DATA = """#cloud-config
runcmd: [[uv-cache], [ln, -s, /usr/local/sbin/uv-cache, /var/lib/cloud/scripts/per-boot/]]
"""
LOOP = """
import importlib
import sys

import config
from trainyard.quickstart import TorchTrainer, initialize_ray_with_syncer, one_message
from ray.train import RunConfig


def loop(names):
    print("found", *(importlib.import_module(name).WHAT for name in names["names"]))


with one_message():
    name, *names = sys.argv[1:]
    syncer = initialize_ray_with_syncer(
        config.PROJECT, config.PROJECT / "src", config.RAY_CONFIG, config.RESULTS
    )
    config = {"train_loop_config": {"names": names}, "run_config": RunConfig(name=name)}
    TorchTrainer(loop, **config).fit(syncer)
"""


@pytest.fixture
def machines() -> Iterator[Machines]:
    try:
        with Machines() as made:
            yield made
    except NoMachinesError as error:
        pytest.skip(str(error))


@pytest.fixture
def index(machines, tmp_path) -> Iterator[str]:
    """The address of an index that machines reach."""
    with pip_index.served(tmp_path / "index", machines.network.gateway) as address:
        yield address


def test_a_bare_machine_becomes_a_box_that_survives_a_restart(machines, index, tmp_path):  # C3 C9
    key, home, project = tmp_path / "key", tmp_path / "home", tmp_path / "project"
    login = Sshd.new_key(key)
    ip, _ = machines.boot("box", user_data=USER_DATA, ssh_public_key=login, systemd=True)
    machines.wait("box")
    with machines.path("box", "/etc/environment").open("a") as variables:
        variables.write('UV_CONSTRAINT="/etc/lock.txt"\n')  # what the cache has
    lock = (ROOT / "requirements/host.txt").read_text()
    machines.path("box", "/etc/lock.txt").write_text(lock)
    host_key = machines.path("box", "/etc/ssh/ssh_host_ed25519_key.pub").read_text()
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/known_hosts").write_text(f"{ip} {host_key}")
    init.write(project)

    ssh_config = tmp_path / "ssh_config"
    ssh_config.write_text(
        f"Host {ADDRESS}\nHostName {ip}\nIdentityFile {key}\n"
        f"UserKnownHostsFile {home}/.ssh/known_hosts\n"
    )
    functions = "".join(f'{n}() {{ command {n} -F {ssh_config} "$@"; }}\n' for n in ("ssh", "scp"))
    done = ran.run(["bash", "-ec", functions + SET_UP.text], cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"host key: {' '.join(host_key.split()[:2])}" in done.stdout

    machines.restart("box")
    port = "timeout 3 bash -c '</dev/tcp/127.0.0.1/10001'"
    wait_for("Ray", lambda: machines.exec("box", port, check=False).returncode == 0, 180)
    owner = machines.exec("box", "ps -o user= -C gcs_server").stdout.split()
    assert owner == ["ubuntu"]

    pip_index.write_project(project, index)
    (project / "src/found.py").write_text(LOOP)
    file = project / "config/ray_config.yaml"
    values = yaml.safe_load(file.read_text())
    values["driver"]["private_key_file"] = str(key)
    for part in ("ray_head", "worker"):
        values[part]["hostname_or_ip_address"] = ip
    file.write_text(yaml.safe_dump(values))
    env = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "SSH_"))}

    def train(*arguments: str) -> str:
        command = [sys.executable, "src/found.py", *arguments]
        done = ran.run(command, cwd=project, env=env | {"HOME": str(home)})
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr  # the box's log is in the latter

    assert "found box_one box_more mine\n" in train("first", "box_one", "box_more", "mine")
    # Ray's environment has none of them; commands install there.
    # `pipenv install --skip-lock` drops markers, and asks for the package of another system.
    lines = pip_index.PIPFILE.format(url=index).splitlines(keepends=True)
    (project / "Pipfile").write_text("".join(each for each in lines if "nowhere" not in each))
    values["worker"]["setup_commands"] = [
        "source ~/.ray/bin/activate",
        "pip install --quiet pipenv",
        "pipenv install --skip-lock",
    ]
    file.write_text(yaml.safe_dump(values))
    assert "found box_one box_more\n" in train("second", "box_one", "box_more")
