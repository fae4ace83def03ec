"""An account of Lambda Cloud as Pulumi resources for programs (providers.py does the work).

Account first, then Choice and SshKey, FirewallRuleset and FileSystem, one Instance for each
machine, and Active, which waits for all of them. In arguments, stackId and backendId are those of
the Account. Those of Choice and Instance are the models that their providers read.
"""
# ruff: noqa: N815 (property names are camelCase in Pulumi states)

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pulumi
from pulumi import ResourceOptions as Opts

from cluster.provider import Resource
from infra.places.lambda_cloud import providers

Props = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class AccountArgs:
    """Whose part it is."""

    organization: str
    project: str
    stack: str


class Account(Resource, module="lambda", name="Account"):
    """A stack's part of the account. Deleted last: it then makes sure that nothing is left.

    Attributes:
        stackId: 8 hexadecimal characters that mark all things of the stack.
        backendId: 8 hexadecimal characters that mark all things of stacks in this state backend.
    """

    _kind = providers.AccountProvider
    stackId: pulumi.Output[str]
    backendId: pulumi.Output[str]

    def __init__(self, name: str, args: AccountArgs, opts: Opts | None = None) -> None:
        super().__init__(name, vars(args), opts)


class Choice(Resource, module="lambda", name="Choice"):
    """The choice of instance type and region, from stackId and choice.InstanceRequest.

    Attributes:
        choices: where launches are tried, in order, each a choice.Pick.
        regions: of all choices.
        hourlyCost: $/h for as many instances as there may be, at the first choice.
        region: where the first choice is.
    """

    _kind = providers.ChoiceProvider
    choices: pulumi.Output[list[Props]]
    regions: pulumi.Output[list[str]]
    hourlyCost: pulumi.Output[float]
    region: pulumi.Output[str]


@dataclass(frozen=True, kw_only=True)
class SshKeyArgs:
    """Name in the account, and path of the private key's file, ~ allowed."""

    stackId: pulumi.Input[str]
    backendId: pulumi.Input[str]
    name: str
    keyFile: str


class SshKey(Resource, module="lambda", name="SshKey"):
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

    def __init__(self, name: str, args: SshKeyArgs, opts: Opts | None = None) -> None:
        super().__init__(name, vars(args), opts)


@dataclass(frozen=True, kw_only=True)
class FirewallRulesetArgs:
    """Arguments of rules.

    Attributes:
        name: in those of the rulesets.
        regions: those that the Choice lists.
        rules: each with protocol, sourceNetwork (CIDR), firstPort, lastPort and description.
    """

    stackId: pulumi.Input[str]
    backendId: pulumi.Input[str]
    name: str
    regions: pulumi.Input[Sequence[str]]
    rules: Sequence[Mapping[str, Any]]


class FirewallRuleset(Resource, module="lambda", name="FirewallRuleset"):
    """Rules for the stack's own instances; the account's global ones are never touched.

    Attributes:
        ids: id of the ruleset in each region.
    """

    _kind = providers.FirewallRulesetProvider
    ids: pulumi.Output[dict[str, str]]

    def __init__(self, name: str, args: FirewallRulesetArgs, opts: Opts | None = None) -> None:
        super().__init__(name, vars(args), opts)


@dataclass(frozen=True, kw_only=True)
class FileSystemArgs:
    """Name and region, and whether it outlives the stack."""

    name: str
    region: pulumi.Input[str]
    keep: bool


class FileSystem(Resource, module="lambda", name="FileSystem"):
    """A file system of the account; an adopted one is never deleted."""

    _kind = providers.FileSystemProvider

    def __init__(self, name: str, args: FileSystemArgs, opts: Opts | None = None) -> None:
        super().__init__(name, vars(args), opts)


class Instance(Resource, module="lambda", name="Instance"):
    """One instance; its id is there at once, its address only from Active.

    From machines.Order; userData has to be a secret.

    Attributes:
        instanceType: the launched type.
        region: its region.
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


@dataclass(frozen=True, kw_only=True)
class ActiveArgs:
    """Instances, and the time for all of them together."""

    instanceIds: Sequence[pulumi.Input[str]]
    timeoutMinutes: float


class Active(Resource, module="lambda", name="Active"):
    """All instances of a stack, once they are active and have an address.

    Attributes:
        addresses: ip, and privateIp ("" where there is none), by id of the instance.
    """

    _kind = providers.ActiveProvider
    addresses: pulumi.Output[dict[str, dict[str, str]]]

    def __init__(self, name: str, args: ActiveArgs, opts: Opts | None = None) -> None:
        super().__init__(name, vars(args), opts)
