"""A program that Go builds, as a resource."""

from pathlib import Path
from typing import Any

import pulumi
from pulumi import dynamic

from cluster.provider import Args, Provider, Resource
from infra.machines.go_build import is_whole, obtain
from infra.machines.go_programs import PROGRAMS, GoProgram


class GoToolArgs(Args):
    """A program in the cache."""

    module: str
    version: str
    path: str


class GoToolProvider(Provider[GoToolArgs]):
    """Builds a Go program. Its delete keeps the cache, which other stacks use too."""

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> dynamic.DiffResult:
        """Another module, version or place is another program."""
        keys = [key for key in ("module", "version", "path") if _olds[key] != _news[key]]
        return dynamic.DiffResult(changes=bool(keys), replaces=keys)

    def make(self, args: GoToolArgs) -> tuple[str, dict[str, Any]]:
        program = next(each for each in PROGRAMS.values() if each.module == args.module)
        obtain(program, Path(args.path))
        return args.path, {}

    def exists(self, id_: str, _args: GoToolArgs) -> bool:
        return is_whole(Path(id_))


class GoTool(Resource[GoToolArgs], module="host", name="GoTool"):
    """A program in the cache."""

    _kind = GoToolProvider
    path: pulumi.Output[str]


def properties(program: GoProgram) -> GoToolArgs:
    """Return the arguments that a program is declared from."""
    return GoToolArgs(module=program.module, version=program.version, path=str(program.path))
