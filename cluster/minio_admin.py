"""Pulumi resources inside a running MinIO: a bucket, and a user with one policy.

The root credentials that they need are secret inputs; nothing else receives them.
"""
# ruff: noqa: N815 (property names are camelCase in Pulumi states)

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any, ClassVar, TypeVar

import pulumi
from pulumi import dynamic

from cluster import lazy_import
from cluster.provider import Args, Given, Provider, Resource
from trainyard.access import terminal


class RootArgs(Args):
    """How the root of a running store is reached.

    Attributes:
        endpoint: host:port.
        via: the machine that reaches the endpoint, as `trainyard.access.ssh.Connection.of` takes
            it, or the cluster that it is in, as `trainyard.access.kubectl.Cluster.of` does.
    """

    endpoint: Given[str]
    rootUser: Given[str]
    rootPassword: Given[str]
    via: Given[Mapping[str, Any] | None] = None


class BucketArgs(RootArgs):
    """Arguments of a bucket."""

    bucket: str


class UserArgs(RootArgs):
    """Arguments of a user of a store."""

    accessKey: Given[str]
    secretKey: Given[str]


class StoreUserArgs(UserArgs):
    """Arguments of a user of MinIO; policy is JSON."""

    policy: str


U = TypeVar("U", bound=UserArgs)


class BucketProvider(Provider[BucketArgs]):
    """Makes a bucket once. Never deletes one: it holds the results of training."""

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> dynamic.DiffResult:
        """Another bucket is another resource; another address is the same bucket."""
        replaces = ["bucket"] if _olds["bucket"] != _news["bucket"] else []
        return dynamic.DiffResult(changes=_changed(_olds, _news), replaces=replaces)

    def make(self, args: BucketArgs) -> tuple[str, dict[str, Any]]:
        """Make the bucket, or keep the one that exists; prove that forged requests are refused."""
        _s3().ensure_bucket(args)
        return args.bucket, {}

    def exists(self, _id: str, args: BucketArgs) -> bool:
        return bool(_s3().has_bucket(args))


# The root keys that this process used last, by the store's endpoint. The state of a former user may
# only have those of an earlier root.
_roots: dict[str, tuple[str, str]] = {}


class UserProvider(Provider[U]):
    """A user of a store.

    Attributes:
        title: the store's name for users.
        module: has the calls. It is imported late: an `up` that changes nothing does not need it.
    """

    title: str
    module: str

    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.DiffResult:
        """Replace the user if its access key changes: the former is removed once it is unused.

        If root's keys change too, update it: only the new root may remove the former user.
        """
        keys = ("accessKey", "rootPassword")
        moved = [key for key in keys if olds[key] != news[key]]
        return dynamic.DiffResult(
            changes=_changed(olds, news), replaces=moved if moved == ["accessKey"] else []
        )

    def make(self, args: U) -> tuple[str, dict[str, Any]]:
        self.calls.write_user(args)
        _roots[args.endpoint] = args.rootUser, args.rootPassword
        # The state shows an id in the clear, and an access key is a secret.
        return hashlib.sha256(args.accessKey.encode()).hexdigest()[:16], {}

    def exists(self, _id: str, args: U) -> bool:
        return bool(self.calls.has_user(args))

    def update(
        self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]
    ) -> dynamic.UpdateResult:
        before, after = self.takes.of(_olds), self.takes.of(_news)
        self.make(after)
        if before.accessKey != after.accessKey:
            self.calls.remove_user(after, before.accessKey)
        return dynamic.UpdateResult(_news)

    def delete(self, _id: str, props: dict[str, Any]) -> None:
        """Remove user and policy; a store that is gone has neither."""
        args = self.takes.of(props)
        user, password = _roots.get(args.endpoint, (args.rootUser, args.rootPassword))
        if not self.calls.remove_user(
            replace(args, rootUser=user, rootPassword=password), args.accessKey
        ):
            terminal.warn(f"{self.title} is gone: nothing to remove of its users")

    @property
    def calls(self) -> ModuleType:
        return lazy_import.module(self.module)


class StoreUserProvider(UserProvider[StoreUserArgs]):
    """A MinIO user with a policy of its own, and no other."""

    title = "MinIO"
    module = "cluster.minio_calls"


class Bucket(Resource[BucketArgs], module="minio", name="Bucket"):
    """A bucket of a running store."""

    _kind = BucketProvider
    bucket: pulumi.Output[str]


class StoreUser(Resource[UserArgs], module="minio", name="User"):
    """A user of a running MinIO, and its policy of the same name.

    Attributes:
        accessKey: of the user; a secret output.
    """

    _kind: ClassVar[type[Provider[Any]]] = StoreUserProvider
    accessKey: pulumi.Output[str]


def _changed(olds: dict[str, Any], news: dict[str, Any]) -> bool:
    same = ("__provider", "former")  # the former key comes with another key, never alone
    return any(olds.get(key) != value for key, value in news.items() if key not in same)


def _s3() -> ModuleType:
    return lazy_import.module("cluster.s3_calls")
