"""The committed stacks, as a user takes them to change them."""

import ipaddress
import re
from pathlib import Path

import asyncssh
import pulumi
import pytest
import yaml

from infra.settings import config

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTATION = ipaddress.ip_network("192.0.2.0/24")  # RFC 5737: for examples only


@pytest.fixture
def read(settings, host):
    """Text and settings of a committed stack."""

    def read(stack, **added):
        text = (ROOT / f"Pulumi.{stack}.yaml").read_text()
        given = yaml.safe_load(text)["config"]
        assert all(key.startswith("trainyard:") for key in given)
        named = {key.removeprefix("trainyard:"): value for key, value in given.items()}
        return text, config.parse(settings(**named | added), host, stack)

    return read


@pytest.mark.parametrize("stack", ["dev", "lab", "hosts", "lambda", "course", "staging", "prod"])
def test_an_example_holds_no_secret(stack):
    text = (ROOT / f"Pulumi.{stack}.yaml").read_text()
    assert not re.search(r"(?i)password|secret:|token|accesskey|apikey:|PRIVATE KEY", text)


def test_the_lab_gives_each_of_two_workers_a_gpu(read):
    _, settings = read("lab")
    assert settings.runtime == "docker"
    assert [node.gpus for node in settings.workers] == [1, 1]  # D19
    assert settings.of_services["notebook"]
    assert settings.of_services["page"]


def test_the_example_of_hosts_is_valid_and_calls_nobody(read):
    _, settings = read("hosts")
    assert settings.on_hosts == len(settings.fleet.hosts) == 1
    assert not settings.workers  # the host's own CPUs and GPUs decide
    (machine,) = settings.fleet.hosts
    assert ipaddress.ip_address(machine.address) in DOCUMENTATION
    # An invalid key would be the error instead of the machine that does not answer.
    assert asyncssh.import_public_key(machine.host_key).get_algorithm() == "ssh-ed25519"


def test_the_example_of_lambda_has_bounds_and_an_end(read):
    _, settings = read("lambda", allowedCidrs=["198.51.100.7/32"])
    cloud = settings.fleet
    assert cloud is not None
    assert settings.on_hosts == cloud.instances == 1
    assert cloud.max_hourly_cost
    assert cloud.ttl_hours
    # Were it more, it would refuse nothing that the bound of an hour lets through.
    assert cloud.budget < cloud.max_hourly_cost * cloud.ttl_hours
    assert cloud.candidates


def test_the_example_of_lambda_asks_who_may_log_in_and_nothing_else(read):  # F33
    """No network is everybody's own, and machines that let nobody in are billed all the same."""
    with pytest.raises(pulumi.RunError, match="have 1 fault ") as raised:
        read("lambda")
    assert "allowedCidrs = '[]': must be set with lambdaCloud" in str(raised.value)


def test_the_course_has_what_its_commands_ask_for_without_a_gpu(read):  # D36
    _, settings = read("course")
    assert settings.runtime == "process"
    assert settings.accelerator == "none"
    assert [(node.cpus, node.gpus) for node in settings.workers] == [(8, 1), (8, 1)]
    assert settings.dataset.generate


def test_environments_differ_in_settings_and_run_side_by_side(read):
    each = {stack: read(stack)[1] for stack in ("dev", "staging", "prod")}
    assert {settings.runtime for settings in each.values()} == {"process"}
    # `make demo` beside other stacks writes a portOffset there, which nobody may commit.
    assert each["dev"].ports["dashboardPort"] == 8265
    texts = {stack: read(stack)[0] for stack in ("staging", "prod")}
    given = {stack: set(re.findall(r"trainyard:(\w+Port):", text)) for stack, text in texts.items()}
    assert given["staging"] == given["prod"]
    ours = [
        number
        for settings in each.values()
        for key in given["prod"]
        for number in range(settings.ports[key], settings.ports[key] + 1 + 2 * (key == "agentPort"))
    ]
    assert len(set(ours)) == len(ours)
    assert len({settings.state_dir for settings in each.values()}) == 3


@pytest.mark.parametrize("stack", ["hosts", "lambda", "staging"])
def test_what_an_example_has_in_comments_is_valid_too(stack, settings, host):
    """A user takes the mark of the comment away, and nothing else."""
    text = (ROOT / f"Pulumi.{stack}.yaml").read_text()
    whole = re.sub(r"(?m)^( +)# (?=[\w:]+: |trainyard:\w+:$|  - )", r"\1", text)
    given = yaml.safe_load(whole)["config"]
    assert len(given) > len(yaml.safe_load(text)["config"])
    raw = settings(**{key.removeprefix("trainyard:"): value for key, value in given.items()})
    assert config.parse(raw, host, stack)
