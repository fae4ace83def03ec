"""Arguments of the resources in an account; stackId and backendId are those of its Account.

Those of Choice and Instance are `choice.InstanceRequest` and `machines.Order`.
"""
# ruff: noqa: N815 (property names are camelCase in Pulumi states)

from collections.abc import Mapping, Sequence
from typing import Any

from cluster.provider import Args, Given


class SshKeyArgs(Args):
    """Name in the account, and path of the private key's file, ~ allowed."""

    stackId: Given[str]
    backendId: Given[str]
    name: str
    keyFile: str


class FirewallRulesetArgs(Args):
    """Arguments of rules.

    Attributes:
        name: in those of the rulesets.
        rules: each with protocol, sourceNetwork (CIDR), firstPort, lastPort and description.
    """

    stackId: Given[str]
    backendId: Given[str]
    name: str
    regions: Given[Sequence[str]]
    rules: Sequence[Mapping[str, Any]]


class FileSystemArgs(Args):
    """Name and region, and whether it outlives the stack."""

    name: str
    region: Given[str]
    keep: bool


class ActiveArgs(Args):
    """Instances, and the time for all of them together."""

    instanceIds: Given[Sequence[str]]
    timeoutMinutes: float
