"""An account of Lambda Cloud as Pulumi resources for programs (providers.py does the work).

Account first, then Choice and SshKey, FirewallRuleset and FileSystem, one Instance for each
machine, and Active, which waits for all of them. `props` of each are the arguments that its
docstring names; stackId and backendId are those of the Account.
"""
# ruff: noqa: N815 (property names are camelCase in Pulumi states)

from typing import Any, ClassVar

import pulumi

from cluster.provider import Resource
from infra.hosts.lambda_cloud import providers

Props = dict[str, Any]


class Account(Resource, module="lambda", name="Account"):
    """A stack's part of the account. Deleted last: it then makes sure that nothing is left.

    From organization, project and stack.

    Attributes:
        stackId: 8 hexadecimal characters that mark all things of the stack.
        backendId: 8 hexadecimal characters that mark all things of stacks in this state backend.
    """

    _kind = providers.AccountProvider
    stackId: pulumi.Output[str]
    backendId: pulumi.Output[str]


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


class SshKey(Resource, module="lambda", name="SshKey"):
    """A key in the account: that of a file, or a new one that is saved to the file.

    What was there before is never deleted.

    From stackId, backendId, name in the account, and keyFile (path of the private key, ~ allowed).

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


class FirewallRuleset(Resource, module="lambda", name="FirewallRuleset"):
    """Rules for the stack's own instances; the account's global ones are never touched.

    From stackId, backendId, name (in those of the rulesets), regions (of a Choice), and rules, each
    with protocol, sourceNetwork (CIDR), firstPort, lastPort and description.

    Attributes:
        ids: id of the ruleset in each region.
    """

    _kind = providers.FirewallRulesetProvider
    ids: pulumi.Output[dict[str, str]]


class FileSystem(Resource, module="lambda", name="FileSystem"):
    """A file system of the account; an adopted one is never deleted.

    From name, region and keep (whether it outlives the stack).
    """

    _kind = providers.FileSystemProvider


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


class Active(Resource, module="lambda", name="Active"):
    """All instances of a stack, once they are active and have an address.

    From instanceIds and timeoutMinutes (for all of them together).

    Attributes:
        addresses: ip, and privateIp ("" where there is none), by id of the instance.
    """

    _kind = providers.ActiveProvider
    addresses: pulumi.Output[dict[str, dict[str, str]]]
