"""An account of Lambda Cloud as Pulumi resources for programs (providers.py does the work).

Account first, then Choice and SshKey, FirewallRuleset and FileSystem, one Instance for each
machine, and Active, which waits for all of them.
"""
# ruff: noqa: N815 (property names are camelCase in Pulumi states)

from typing import Any, ClassVar

import pulumi

from cluster.provider import Resource
from infra.machines.cloud_provider import AccountArgs
from infra.places.lambda_cloud import providers
from infra.places.lambda_cloud.args import (
    ActiveArgs,
    FileSystemArgs,
    FirewallRulesetArgs,
    SshKeyArgs,
)
from infra.places.lambda_cloud.choice import InstanceRequest
from infra.places.lambda_cloud.machines import Order

Props = dict[str, Any]


class Account(Resource[AccountArgs], module="lambda", name="Account"):
    """A stack's part of the account. Deleted last: it then makes sure that nothing is left.

    Attributes:
        stackId: 8 hexadecimal characters that mark all things of the stack.
        backendId: 8 hexadecimal characters that mark all things of stacks in this state backend.
    """

    _kind = providers.AccountProvider
    stackId: pulumi.Output[str]
    backendId: pulumi.Output[str]


class Choice(Resource[InstanceRequest], module="lambda", name="Choice"):
    """The choice of instance type and region.

    Attributes:
        choices: where launches are tried, in order, each a choice.Pick.
        hourlyCost: $/h for as many instances as there may be, at the first choice.
        region: where the first choice is.
    """

    _kind = providers.ChoiceProvider
    choices: pulumi.Output[list[Props]]
    regions: pulumi.Output[list[str]]
    hourlyCost: pulumi.Output[float]
    region: pulumi.Output[str]


class SshKey(Resource[SshKeyArgs], module="lambda", name="SshKey"):
    """A key in the account: that of a file, or a new one that is saved to the file.

    What was there before is never deleted.

    Attributes:
        name: in the account.
        publicKey: without a comment.
        privateKey: a secret output; "" when a passphrase protects the file.
    """

    _kind = providers.SshKeyProvider
    _secret: ClassVar = ["privateKey"]
    name: pulumi.Output[str]
    publicKey: pulumi.Output[str]
    privateKey: pulumi.Output[str]


class FirewallRuleset(Resource[FirewallRulesetArgs], module="lambda", name="FirewallRuleset"):
    """Rules for the stack's own instances; the account's global ones are never touched.

    Attributes:
        ids: id of the ruleset in each region.
    """

    _kind = providers.FirewallRulesetProvider
    ids: pulumi.Output[dict[str, str]]


class FileSystem(Resource[FileSystemArgs], module="lambda", name="FileSystem"):
    """A file system of the account; an adopted one is never deleted."""

    _kind = providers.FileSystemProvider


class Instance(Resource[Order], module="lambda", name="Instance"):
    """One instance; its id is there at once, its address only from Active.

    Attributes:
        hourlyCost: $/h.
        launchedAt: time in ISO 8601.
        firewallRulesetId: the ruleset of its region.
        healthy: False once it has to be replaced.
    """

    _kind = providers.InstanceProvider
    instanceType: pulumi.Output[str]
    region: pulumi.Output[str]
    hourlyCost: pulumi.Output[float]
    launchedAt: pulumi.Output[str]
    firewallRulesetId: pulumi.Output[str]
    healthy: pulumi.Output[bool]


class Active(Resource[ActiveArgs], module="lambda", name="Active"):
    """All instances of a stack, once they are active and have an address.

    Attributes:
        addresses: ip, and privateIp ("" where there is none), by id of the instance.
    """

    _kind = providers.ActiveProvider
    addresses: pulumi.Output[dict[str, dict[str, str]]]
