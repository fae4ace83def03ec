"""Sources of machines: their settings, and their cost to stacks without one."""

import subprocess
import sys
from pathlib import Path

import pytest

from infra.machines import sources
from infra.settings import config

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize(
    ("program", "unused"),
    [
        (
            "from infra import places; [*places.modules('place')]",
            {"asyncssh", "httpx", "lightkube", "pulumi_docker"},
        ),
        # In providers' process.
        ("import infra.machines.process, infra.machines.executable", {"pydantic"}),
    ],
)
def test_a_stack_of_this_machine_pays_for_nothing_that_it_does_not_use(program, unused):
    command = [sys.executable, "-c", f"import sys; {program}; print({unused} & {{*sys.modules}})"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"


def test_every_source_has_its_own_settings_and_properties():
    assert sources.CLOUDS
    for field in ("title", "api_key", "instance", "module"):
        names = {getattr(cloud, field) for cloud in sources.CLOUDS}
        assert len(names) == len(sources.CLOUDS)
    assert len({source.setting for source in sources.SOURCES}) == len(sources.SOURCES)


def test_a_setting_that_is_left_out_or_empty_asks_for_nothing(settings, host):
    for source in sources.SOURCES:
        for text in ("[]", " [] ") if source.setting == "hosts" else ("{}", " {} "):
            parsed = config.parse(settings() | {source.setting: text}, host, "dev")
            assert (parsed.fleet, parsed.renting) == (None, "")
    rented = {"lambdaCloud": {"gpus": 1}, "allowedCidrs": ["192.0.2.0/24"]}
    assert config.parse(settings(**rented), host, "dev").renting == "lambdaCloud"
