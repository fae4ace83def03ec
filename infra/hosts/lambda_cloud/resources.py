"""An account of Lambda Cloud as Pulumi resources for programs (providers.py does the work).

Account first, then Choice and SshKey, FirewallRuleset and FileSystem, one Instance for each
machine, and Active, which waits for all of them. `props` of each are the arguments that its
docstring names; stackId and backendId are those of the Account.
"""
# ruff: noqa: N815 (property names are camelCase in Pulumi states)

from typing import Any, ClassVar

import pulumi
from pulumi import dynamic

from infra.hosts.lambda_cloud import providers

Props = dict[str, Any]


class Resource(dynamic.Resource):
    """The base of all: its annotations are the outputs."""

    _kind: ClassVar[type[dynamic.ResourceProvider]]
    _secret: ClassVar[list[str]] = []

    def __init__(self, name: str, props: Props, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare it; see the class for props."""
        outputs = [key for key in type(self).__annotations__ if not key.startswith("_")]
        secret = pulumi.ResourceOptions(additional_secret_outputs=self._secret)
        super().__init__(
            self._kind(),
            name,
            {**dict.fromkeys(outputs), **props},
            pulumi.ResourceOptions.merge(opts, secret),
        )


class Account(Resource, module="lambda", name="Account"):
    """A stack's part of the account. Deleted last: it then makes sure that nothing is left.

    Attributes:
        stackId: 8 hexadecimal characters that mark all things of the stack.
        backendId: 8 hexadecimal characters that mark all things of stacks in this state backend.
    """

    _kind = providers.AccountProvider
    stackId: pulumi.Output[str]
    backendId: pulumi.Output[str]

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare it; a stack has one."""
        stack = {"project": pulumi.get_project(), "stack": pulumi.get_stack()}
        super().__init__(name, {"organization": pulumi.get_organization(), **stack}, opts)


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

    From stackId, backendId, name in the account, and keyFile (path of the private key, ~ allowed).

    Attributes:
        name: in the account.
        publicKey: without a comment.
        privateKey: a secret output; "" when a passphrase protects the file.
        owned: False when the account had the key before; then it is never deleted.
        fileOwned: False when the file was there before; then it is never removed.
    """

    _kind = providers.SshKeyProvider
    _secret: ClassVar = ["privateKey"]
    name: pulumi.Output[str]
    publicKey: pulumi.Output[str]
    privateKey: pulumi.Output[str]
    owned: pulumi.Output[bool]
    fileOwned: pulumi.Output[bool]


class FirewallRuleset(Resource, module="lambda", name="FirewallRuleset"):
    """Rules for the stack's own instances; the account's global ones are never touched.

    From stackId, backendId, regions (of a Choice), and rules, each with protocol, sourceNetwork
    (CIDR), firstPort, lastPort and description.

    Attributes:
        ids: id of the ruleset in each region.
    """

    _kind = providers.FirewallRulesetProvider
    ids: pulumi.Output[dict[str, str]]

    def __init__(self, name: str, props: Props, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare rulesets, whose names tell project and stack."""
        own = {"project": pulumi.get_project(), "stack": pulumi.get_stack()}
        super().__init__(name, {**own, **props}, opts)


class FileSystem(Resource, module="lambda", name="FileSystem"):
    """A file system of the account, made or adopted.

    From name, region and keep (whether it outlives the stack).

    Attributes:
        mountPoint: absolute path on instances.
        owned: False when it was there before; then it is never deleted.
    """

    _kind = providers.FileSystemProvider
    mountPoint: pulumi.Output[str]
    owned: pulumi.Output[bool]


class Instance(Resource, module="lambda", name="Instance"):
    """One instance; its id is there at once, its address only from Active.

    From machines.Order; userData is kept as a secret.

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

    def __init__(self, name: str, props: Props, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare an instance."""
        super().__init__(name, {**props, "userData": pulumi.Output.secret(props["userData"])}, opts)


class Active(Resource, module="lambda", name="Active"):
    """All instances of a stack, once they are active and have an address.

    From instanceIds and timeoutMinutes (for all of them together).

    Attributes:
        addresses: ip, and privateIp ("" where there is none), by id of the instance.
    """

    _kind = providers.ActiveProvider
    addresses: pulumi.Output[dict[str, dict[str, str]]]
