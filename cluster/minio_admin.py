"""Pulumi resources inside a running MinIO: a bucket, and a user with one policy.

The root credentials that they need are secret inputs; nothing else receives them.
"""
# ruff: noqa: N815 (property names are camelCase in Pulumi states)

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pulumi
from pulumi import dynamic

from cluster import lazy_import
from cluster.provider import Provider, Resource
from trainyard.access import terminal


class BucketProvider(Provider):
    """Makes a bucket once. Never deletes one: it holds the results of training."""

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> dynamic.DiffResult:
        """Another bucket is another resource; another address is the same bucket."""
        replaces = ["bucket"] if _olds["bucket"] != _news["bucket"] else []
        return dynamic.DiffResult(changes=_changed(_olds, _news), replaces=replaces)

    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        """Make the bucket, or keep the one that exists; prove that forged requests are refused."""
        _s3().ensure_bucket(props)
        return dynamic.CreateResult(props["bucket"], props)

    def read(self, id_: str, props: dict[str, Any]) -> dynamic.ReadResult:
        """Look up whether the bucket exists."""
        there = _s3().has_bucket(props)
        return dynamic.ReadResult(id_, props) if there else dynamic.ReadResult("", {})


# The root keys that this process used last, by the store's endpoint. The state of a former user may
# only have those of an earlier root.
_roots: dict[str, dict[str, Any]] = {}


class StoreUserProvider(Provider):
    """A MinIO user with a policy of its own, and no other."""

    title = "MinIO"

    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.DiffResult:
        """Replace the user if its access key changes: the former is removed once it is unused.

        If root's keys change too, update it: only the new root may remove the former user.
        """
        keys = ("accessKey", "rootPassword")
        moved = [key for key in keys if olds[key] != news[key]]
        return dynamic.DiffResult(
            changes=_changed(olds, news), replaces=moved if moved == ["accessKey"] else []
        )

    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        """Write policy and user; both calls overwrite the leftovers of an earlier attempt."""
        self.calls().write_user(props)
        _roots[props["endpoint"]] = {key: props[key] for key in ("rootUser", "rootPassword")}
        # The state shows an id in the clear, and an access key is a secret.
        return dynamic.CreateResult(_digest(props["accessKey"]), props)

    def read(self, id_: str, props: dict[str, Any]) -> dynamic.ReadResult:
        """Look up whether the user exists with its policy."""
        there = self.calls().has_user(props)
        return dynamic.ReadResult(id_, props) if there else dynamic.ReadResult("", {})

    def update(
        self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]
    ) -> dynamic.UpdateResult:
        """Rewrite policy and user; remove the user of another key."""
        outs = self.create(_news).outs
        if _olds["accessKey"] != _news["accessKey"]:
            self.calls().remove_user(_news, _olds["accessKey"])
        return dynamic.UpdateResult(outs)

    def delete(self, _id: str, props: dict[str, Any]) -> None:
        """Remove user and policy; a store that is gone has neither."""
        there = {**props, **_roots.get(props["endpoint"], {})}
        if not self.calls().remove_user(there, props["accessKey"]):
            terminal.warn(f"{self.title} is gone: nothing to remove of its users")

    def calls(self) -> ModuleType:
        """Return the module with the calls.

        Imported when the store is called: it would make an `up` that changes nothing much slower.
        """
        return lazy_import.module("cluster.minio_calls")


@dataclass(frozen=True, kw_only=True)
class RootArgs:
    """How the root of a running store is reached.

    Attributes:
        endpoint: host:port.
        rootUser: its access key.
        rootPassword: its secret key.
        via: the machine or cluster through which it is reached, see s3_calls; None without one.
    """

    endpoint: pulumi.Input[str]
    rootUser: pulumi.Input[str]
    rootPassword: pulumi.Input[str]
    via: pulumi.Input[Mapping[str, pulumi.Input[Any]]] | None


@dataclass(frozen=True, kw_only=True)
class BucketArgs(RootArgs):
    """Arguments of a bucket."""

    bucket: str


class Bucket(Resource, module="minio", name="Bucket"):
    """A bucket of a running store.

    Attributes:
        bucket: its name.
    """

    _kind = BucketProvider
    bucket: pulumi.Output[str]

    def __init__(self, name: str, args: BucketArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(name, vars(args), opts)


@dataclass(frozen=True, kw_only=True)
class UserArgs(RootArgs):
    """Arguments of a user of a store."""

    accessKey: pulumi.Input[str]
    secretKey: pulumi.Input[str]


@dataclass(frozen=True, kw_only=True)
class StoreUserArgs(UserArgs):
    """Arguments of a user of MinIO; policy is JSON."""

    policy: str


class StoreUser(Resource, module="minio", name="User"):
    """A user of a running MinIO, and its policy of the same name.

    Attributes:
        accessKey: of the user; a secret output.
    """

    _kind = StoreUserProvider
    accessKey: pulumi.Output[str]

    def __init__(self, name: str, args: UserArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(name, vars(args), opts)


def _changed(olds: dict[str, Any], news: dict[str, Any]) -> bool:
    same = ("__provider", "former")  # the former key comes with another key, never alone
    return any(olds.get(key) != value for key, value in news.items() if key not in same)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _s3() -> ModuleType:
    return lazy_import.module("cluster.s3_calls")
