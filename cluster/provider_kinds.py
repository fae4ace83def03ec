"""How states record a provider: by a call of `Recorded` with its kind.

Pulumi's host of providers unpickles what a state records, also to destroy a stack that an earlier
version made. So this module and `Recorded` keep their names. Everything else may move: then its
line in `KINDS` changes.
"""

import importlib
from typing import Any

from pulumi.dynamic import ResourceProvider

# The module and class of each kind, which is the type of its resource.
KINDS = {
    "cluster:Secret": "cluster.secret.SecretProvider",
    "docker:Choice": "infra.places.containers.choice.ChoiceProvider",
    "docker:Deadline": "infra.places.containers.container_deadline.DeadlineProvider",
    "docker:Leave": "infra.places.containers.container_leave.LeaveProvider",
    "docker:Node": "infra.places.containers.container.NodeProvider",
    "docker:Ready": "infra.places.containers.container.ReadyProvider",
    "host:Executable": "infra.machines.executable.ExecutableProvider",
    "host:GoTool": "infra.machines.go_tool.GoToolProvider",
    "host:HostKey": "infra.machines.host_key.HostKeyProvider",
    "host:Reachable": "infra.machines.reachable.ReachableProvider",
    "kubernetes:Object": "infra.places.kubernetes.objects.ObjectProvider",
    "kubernetes:Ready": "infra.places.kubernetes.ready.ReadyProvider",
    "kubernetes:RecreateGuard": "infra.places.kubernetes.recreate_guard.RecreateGuardProvider",
    "lambda:Account": "infra.places.lambda_cloud.providers.AccountProvider",
    "lambda:Active": "infra.places.lambda_cloud.providers.ActiveProvider",
    "lambda:Choice": "infra.places.lambda_cloud.providers.ChoiceProvider",
    "lambda:Deadline": "infra.places.lambda_cloud.deadline.DeadlineProvider",
    "lambda:FileSystem": "infra.places.lambda_cloud.providers.FileSystemProvider",
    "lambda:FirewallRuleset": "infra.places.lambda_cloud.providers.FirewallRulesetProvider",
    "lambda:Instance": "infra.places.lambda_cloud.providers.InstanceProvider",
    "lambda:SshKey": "infra.places.lambda_cloud.providers.SshKeyProvider",
    "minio:Bucket": "cluster.minio_admin.BucketProvider",
    "minio:User": "cluster.minio_admin.StoreUserProvider",
    "process:Data": "infra.machines.process.DataProvider",
    "process:Files": "infra.machines.process.FilesProvider",
    "process:Mark": "infra.places.stack_mark.MarkProvider",
    "process:Once": "infra.machines.once.OnceProvider",
    "process:Program": "infra.machines.process.ProgramProvider",
    "process:Supervisor": "infra.machines.process.DaemonProvider",
    "versitygw:Bucket": "cluster.versitygw_admin.BucketProvider",
    "versitygw:User": "cluster.versitygw_admin.StoreUserProvider",
}
_KIND_OF = {path: kind for kind, path in KINDS.items()}


class Recorded(ResourceProvider):
    """Makes the provider of a kind: a call never returns an instance of this class."""

    def __new__(cls, kind: str) -> Any:
        """Return a provider of a kind, whose module is imported only now.

        Raises:
            LookupError: this version has no such kind.
        """
        module, _, name = KINDS[kind].rpartition(".")
        return getattr(importlib.import_module(module), name)()


def kind_of(class_: type) -> str:
    """Return the kind of a class of providers, "" for one that is recorded by its own name."""
    return _KIND_OF.get(f"{class_.__module__}.{class_.__qualname__}", "")
