"""The commands by which images come to the registry of a cluster, on a real Docker Engine."""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator

import bcrypt
import pytest
import requests
import yaml

from tests import checkout, pages
from tests.pages import Terminal, blocks_of
from tests.ports import free_ports
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

PROGRAM = "docker-registry"  # and Debian's package that has it
USER, PASSWORD = "trainyard", "not-a-secret"
FOLDER = "trainyard-test"
SETTING = "  trainyard:images:"
# Instead of a registry's; other tests build on them too, so the Engine has most steps cached.
BASE, GO = "trainyard-test/base", "trainyard-test/go"
INSTEAD = {
    "--push": f"--push --build-arg BASE_IMAGE={BASE} --build-arg GO_IMAGE={GO}",
    "registry.example/trainyard": f"registry.example/{FOLDER}",
    # To push PyTorch's gigabytes would take minutes. The others are built for other tests.
    "ray versitygw jupyter": "versitygw",
}


@pytest.fixture
def registry(tmp_path) -> Iterator[str]:
    """The address of a registry that asks for a password."""
    if not shutil.which(PROGRAM):
        pytest.skip(f"no {PROGRAM}: install Debian's package of this name")
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    passwords = tmp_path / "passwords"
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
    passwords.write_text(f"{USER}:{hashed}\n")
    settings = {
        "version": "0.1",
        "storage": {"filesystem": {"rootdirectory": str(tmp_path / "registry")}},
        "http": {"addr": address},
        "auth": {"htpasswd": {"realm": "tests", "path": str(passwords)}},
    }
    file = tmp_path / "registry.yaml"
    file.write_text(json.dumps(settings))
    with (tmp_path / "registry.log").open("wb") as log:
        process = subprocess.Popen([PROGRAM, "serve", file], stdout=log, stderr=log)
    try:
        wait_for("the registry", lambda: _asks_for_a_password(address))
        yield address
    finally:
        process.kill()
        process.wait()


def _asks_for_a_password(address: str) -> bool:
    return requests.get(f"http://{address}/v2/", timeout=5).status_code == 401


@pytest.mark.parametrize(("page", "blocks"), blocks_of("registry").items())
def test_the_commands_of_a_page(page, blocks, registry, containers, versitygw_image, tmp_path):
    login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    (tmp_path / "docker").mkdir()
    known = tmp_path / "docker" / "config.json"  # otherwise `docker login` asks for them
    known.write_text(json.dumps({"auths": {registry: {"auth": login}}}))
    project = checkout.copy(tmp_path / "trainyard")
    user = Terminal(
        project,
        {**os.environ, "DOCKER_CONFIG": str(known.parent)},
        {**INSTEAD, "registry.example": registry},
    )
    user.run(pages.SOURCED)
    made: set[str] = set()
    try:
        for block in blocks:
            if SETTING in (printed := user.run(block)):
                names = yaml.safe_load(printed[printed.index(SETTING) :])["trainyard:images"]
                made |= {*names.values()}
        containers.docker("image", "rm", *made)
        for name in made:  # as a node gets them
            containers.docker("pull", name, env=user.environment)
        code, said = containers.run(names["versitygw"], "--version")
        assert code == 0, said
    finally:
        containers.remove()  # they hold the images
        containers.docker("image", "rm", *made, check=False)
