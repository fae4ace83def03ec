"""The settings that pages show are those that a stack reads."""

from typing import Any

import pulumi
import pytest
import yaml

from infra.settings import config
from tests import pages

BLOCKS = [
    block for block in pages.blocks() if block.language == "yaml" and "trainyard:" in block.text
]
ELIDED = ("ssh-ed25519 AAAA…", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG5vYm9keSdzIGtleQ")


def _keys(text: str) -> dict[str, Any]:
    """The settings of a file, or of lines of one."""
    document = yaml.safe_load(text.replace(*ELIDED))
    return {
        name.removeprefix("trainyard:"): value
        for name, value in document.get("config", document).items()
    }


def _shipped(stack: str) -> dict[str, Any]:
    return _keys((pages.ROOT / f"Pulumi.{stack}.yaml").read_text())


ON_KUBERNETES = next(block for block in BLOCKS if block.page == "docs/kubernetes.md")
ALIKE = {"worker", "workers"}  # groups take their place
# The stacks that lines of a page are put into.
STACKS: dict[str, dict[str, Any]] = {
    "dev": _shipped("dev"),
    "lab": _shipped("lab"),
    "hosts": _shipped("hosts"),
    "lambda": _shipped("lambda") | {"allowedCidrs": ["198.51.100.7/32"]},
    "kube": _keys(ON_KUBERNETES.text),
}


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_stack_reads_the_settings_of_a_page(block, settings, host):
    shown, refused = _keys(block.text), {}
    replaced = ALIKE if "nodeGroups" in shown else set()
    for stack, its_own in STACKS.items():
        kept = {key: value for key, value in its_own.items() if key not in replaced}
        try:
            config.parse(settings(**kept | shown), host, stack)
        except pulumi.RunError as error:
            refused[stack] = str(error)
    assert len(refused) < len(STACKS), "\n".join(refused.values())
