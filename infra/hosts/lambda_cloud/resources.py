"""An account of Lambda Cloud as Pulumi resources for programs (providers.py does the work).

Account first, then Choice and SshKey, FirewallRuleset and FileSystem, one Instance for each
machine, and Active, which waits for all of them.
"""
# ruff: noqa: N815 (property names are camelCase in Pulumi states)

from typing import Any

import pulumi
from pulumi import dynamic

from infra.hosts.lambda_cloud import providers

Props = dict[str, Any]


class Account(dynamic.Resource, module="lambda", name="Account"):
    """A stack's part of the account. Deleted last: it then makes sure that nothing is left.

    Attributes:
        stackId: 8 hexadecimal characters that mark all things of the stack.
        backendId: 8 hexadecimal characters that mark all things of stacks in this state backend.
    """

    stackId: pulumi.Output[str]
    backendId: pulumi.Output[str]

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare it; a stack has one."""
        props = {
            "organization": pulumi.get_organization(),
            "project": pulumi.get_project(),
            "stack": pulumi.get_stack(),
            "stackId": None,
            "backendId": None,
        }
        super().__init__(providers.AccountProvider(), name, props, opts)


class Choice(dynamic.Resource, module="lambda", name="Choice"):
    """The choice of instance type and region, and its cost.

    Attributes:
        choices: where launches are tried, in order: instanceType, region, hourlyCost ($ for one),
            gpus, gpuDescription, vcpus, memoryMib of each.
        regions: of all choices.
        instanceType: instance type of the first choice; the next ones describe that choice too.
        region: its region.
        hourlyCost: $/h for as many instances as there may be.
        gpus: number of GPUs of one instance.
        gpuDescription: model and memory of its GPUs.
        vcpus: number of CPUs of one instance.
        memoryMib: memory of one instance.
    """

    choices: pulumi.Output[list[Props]]
    regions: pulumi.Output[list[str]]
    instanceType: pulumi.Output[str]
    region: pulumi.Output[str]
    hourlyCost: pulumi.Output[float]
    gpus: pulumi.Output[int]
    gpuDescription: pulumi.Output[str]
    vcpus: pulumi.Output[int]
    memoryMib: pulumi.Output[int]

    def __init__(self, name: str, props: Props, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare a choice.

        Args:
            name: of the resource.
            props: stackId; either candidates (a list of type and region, "" for any) or need (gpus
                and gpuMemoryGib, each at least so many); count of instances at most, and least
                where there may be fewer; maxHourlyCost ($/h), budget ($) and ttlHours, 0 for none;
                needFirewall to leave out regions that apply no rules.
            opts: of the resource.
        """
        outputs = dict.fromkeys(Choice.__annotations__)
        super().__init__(providers.ChoiceProvider(), name, {**outputs, **props}, opts)


class SshKey(dynamic.Resource, module="lambda", name="SshKey"):
    """A key in the account: that of a file, or a new one that is saved to the file.

    Attributes:
        name: in the account.
        publicKey: without a comment.
        privateKey: a secret output; "" when a passphrase protects the file.
        owned: False when the account had the key before; then it is never deleted.
        fileOwned: False when the file was there before; then it is never removed.
    """

    name: pulumi.Output[str]
    publicKey: pulumi.Output[str]
    privateKey: pulumi.Output[str]
    owned: pulumi.Output[bool]
    fileOwned: pulumi.Output[bool]

    def __init__(self, name: str, props: Props, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare a key.

        Args:
            name: of the resource.
            props: stackId and backendId (of an Account); name in the account; keyFile (path of the
                private key, ~ allowed).
            opts: of the resource.
        """
        made = dict.fromkeys(("publicKey", "privateKey", "owned", "fileOwned"))
        marked = pulumi.ResourceOptions(additional_secret_outputs=["privateKey"])
        super().__init__(
            providers.SshKeyProvider(),
            name,
            {**made, **props},
            pulumi.ResourceOptions.merge(opts, marked),
        )


class FirewallRuleset(dynamic.Resource, module="lambda", name="FirewallRuleset"):
    """Rules for the stack's own instances; the account's global ones are never touched.

    Attributes:
        ids: id of the ruleset in each region.
    """

    ids: pulumi.Output[dict[str, str]]

    def __init__(self, name: str, props: Props, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare rulesets.

        Args:
            name: of the resource.
            props: stackId and backendId (of an Account); regions (of a Choice); rules, each with
                protocol, sourceNetwork (CIDR), firstPort, lastPort and description.
            opts: of the resource.
        """
        own = {"project": pulumi.get_project(), "stack": pulumi.get_stack(), "ids": None}
        super().__init__(providers.FirewallRulesetProvider(), name, {**own, **props}, opts)


class FileSystem(dynamic.Resource, module="lambda", name="FileSystem"):
    """A file system of the account, made or adopted.

    Attributes:
        mountPoint: absolute path on instances.
        owned: False when it was there before; then it is never deleted.
    """

    mountPoint: pulumi.Output[str]
    owned: pulumi.Output[bool]

    def __init__(self, name: str, props: Props, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare a file system from name, region and keep (whether it outlives the stack)."""
        made = dict.fromkeys(("mountPoint", "owned"))
        super().__init__(providers.FileSystemProvider(), name, {**made, **props}, opts)


class Instance(dynamic.Resource, module="lambda", name="Instance"):
    """One instance; its id is there at once, its address only from Active.

    Attributes:
        instanceType: the launched type.
        region: its region.
        hourlyCost: $/h.
        launchedAt: time in ISO 8601.
    """

    instanceType: pulumi.Output[str]
    region: pulumi.Output[str]
    hourlyCost: pulumi.Output[float]
    launchedAt: pulumi.Output[str]

    def __init__(self, name: str, props: Props, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare an instance.

        Args:
            name: of the resource.
            props: stackId; name in the account; node (number of the instance in the stack) and
                count (of the stack's instances); choices (of a Choice); sshKeyName; hostname; tags
                (identity.tags); and if wanted firewallRulesetIds (ids of a FirewallRuleset),
                fileSystemMounts (ids by mount point), userData (for cloud-init; kept as a secret)
                and ttlHours (noted for `python -m infra.reap`).
            opts: of the resource.
        """
        own = ("instanceType", "region", "hourlyCost", "launchedAt", "firewallRulesetId", "healthy")
        defaults: Props = {"firewallRulesetIds": {}, "fileSystemMounts": {}, "ttlHours": 0}
        user_data = pulumi.Output.secret(props.get("userData", ""))
        super().__init__(
            providers.InstanceProvider(),
            name,
            {**dict.fromkeys(own), **defaults, **props, "userData": user_data},
            opts,
        )


class Active(dynamic.Resource, module="lambda", name="Active"):
    """All instances of a stack, once they are active and have an address.

    Attributes:
        addresses: ip, privateIp ("" where there is none) and hostname by id of the instance.
    """

    addresses: pulumi.Output[dict[str, dict[str, str]]]

    def __init__(self, name: str, props: Props, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the wait from instanceIds and timeoutMinutes (for all of them together)."""
        super().__init__(providers.ActiveProvider(), name, {"addresses": None, **props}, opts)
