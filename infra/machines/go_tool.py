"""A program that Go builds, as a resource."""

from pathlib import Path
from typing import Any

import pulumi
from pulumi import dynamic

from cluster.provider import Provider, Resource, say
from infra.machines.go_build import is_whole, obtain
from infra.machines.go_programs import PROGRAMS, GoProgram


class GoToolProvider(Provider):
    """Builds a Go program. Its delete keeps the cache, which other stacks use too."""

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> dynamic.DiffResult:
        """Another module, version or place is another program."""
        keys = [key for key in ("module", "version", "path") if _olds[key] != _news[key]]
        return dynamic.DiffResult(changes=bool(keys), replaces=keys)

    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        """Build the program, unless the cache has it unchanged."""
        program = next(each for each in PROGRAMS.values() if each.module == props["module"])
        obtain(program, Path(props["path"]), say)
        return dynamic.CreateResult(props["path"], props)

    def read(self, id_: str, props: dict[str, Any]) -> dynamic.ReadResult:
        """Check whether the program is still in the cache, unchanged."""
        there = is_whole(Path(id_))
        return dynamic.ReadResult(id_, props) if there else dynamic.ReadResult("", {})


class GoTool(Resource, module="host", name="GoTool"):
    """A program in the cache, from module, version and path."""

    _kind = GoToolProvider
    path: pulumi.Output[str]


def properties(program: GoProgram) -> dict[str, Any]:
    """Return the properties that a program is declared from."""
    return {"module": program.module, "version": program.version, "path": str(program.path)}
