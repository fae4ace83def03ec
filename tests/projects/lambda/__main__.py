"""What a stack on Lambda Cloud declares, as small as it gets."""

import pulumi

from infra.machines import identity, local
from infra.places.lambda_cloud.choice import InstanceRequest
from infra.places.lambda_cloud.machines import Order
from infra.places.lambda_cloud.resources import (
    Account,
    AccountArgs,
    Active,
    ActiveArgs,
    Choice,
    FileSystem,
    FileSystemArgs,
    FirewallRuleset,
    FirewallRulesetArgs,
    Instance,
    SshKey,
    SshKeyArgs,
)

config = pulumi.Config()
ttl = config.require_int("ttlHours")
own = {"project": pulumi.get_project(), "stack": pulumi.get_stack()}
account = Account("account", AccountArgs(organization=pulumi.get_organization(), **own))
choice = Choice(
    "choice",
    InstanceRequest(
        stackId=account.stackId,
        candidates=config.require_object("candidates"),
        count=config.require_int("count"),
        maxHourlyCost=config.require_int("maxHourlyCost"),
        ttlHours=ttl,
    ),
)
key = SshKey(
    "key",
    SshKeyArgs(
        stackId=account.stackId,
        backendId=account.backendId,
        name="test-ssh-010",
        keyFile=config.require("keyFile"),
    ),
)
rulesets = FirewallRuleset(
    "ruleset",
    FirewallRulesetArgs(
        stackId=account.stackId,
        backendId=account.backendId,
        name="rented-dev",
        regions=choice.regions,
        rules=[
            {
                "protocol": "tcp",
                "sourceNetwork": cidr,
                "firstPort": 22,
                "lastPort": 22,
                "description": "SSH",
            }
            for cidr in config.require_object("cidrs")
        ],
    ),
)
mounts = {}
if system := config.get("fileSystem"):
    mounted = FileSystem("data", FileSystemArgs(name=system, region="us-east-1", keep=True))
    mounts = {"/data": mounted.id}
instances = [
    Instance(
        f"node-{node}",
        Order(
            stackId=account.stackId,
            name=f"rented-{node}",
            node=node,
            count=config.require_int("count"),
            choices=choice.choices,
            sshKeyName=key.name,
            hostname=f"rented-{node}",
            tags=identity.tags(**own, owner=local.owner(), backend=account.backendId),
            userData=pulumi.Output.secret("#cloud-config\n# canary-user-data\n"),
            firewallRulesetIds=rulesets.ids,
            fileSystemMounts=mounts,
            ttlHours=ttl,
        ),
    )
    for node in range(config.require_int("count"))
]
active = Active(
    "active",
    ActiveArgs(
        instanceIds=[instance.id for instance in instances],
        timeoutMinutes=float(config.require("timeoutMinutes")),
    ),
)
pulumi.export("addresses", active.addresses)
pulumi.export("hourlyCost", choice.hourlyCost)
pulumi.export("regions", [instance.region for instance in instances])
pulumi.export("sshKey", key.privateKey)
