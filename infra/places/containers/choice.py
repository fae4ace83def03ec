"""Chooses the runtime of a stack that leaves this to its machine.

It is chosen once: a stack of containers does not turn into one of processes because the Docker
Engine happens to be stopped.
"""

from pathlib import Path
from typing import Any

import pulumi

from cluster.provider import Args, Provider, Resource
from infra.machines import docker_engine
from node.life import ServiceError

DOCKER, PROCESS, AUTO = "docker", "process", "auto"


class RuntimeChoiceArgs(Args):
    """The file that keeps a choice, and the runtime that was chosen."""

    path: str
    runtime: str


class ChoiceProvider(Provider[RuntimeChoiceArgs]):
    """A file that holds the name of the runtime."""

    replaces = ("path", "runtime")

    def make(self, args: RuntimeChoiceArgs) -> tuple[str, dict[str, Any]]:
        path = Path(args.path)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.write_text(args.runtime)
        except OSError as error:
            raise ServiceError(
                f"the runtime of this stack cannot be kept in {path} ({error.strerror}): make that "
                f"folder writable, set XDG_DATA_HOME to one of yours, or runtime to {DOCKER} or "
                f"{PROCESS}"
            ) from None
        return args.path, {}

    def exists(self, id_: str, _args: RuntimeChoiceArgs) -> bool:
        return Path(id_).exists()

    def delete(self, _id: str, props: dict[str, Any]) -> None:
        """Remove the file: the next stack of this name chooses again."""
        Path(self.takes.of(props).path).unlink(missing_ok=True)


class RuntimeChoice(Resource[RuntimeChoiceArgs], module="docker", name="Choice"):
    """The runtime that was chosen."""

    _kind = ChoiceProvider


def choose(setting: str, path: Path) -> str:
    """Return docker or process; declares the choice where the setting leaves it open.

    Raises:
        pulumi.RunError: the file that keeps a choice holds neither.
    """
    if setting != AUTO:
        return setting
    if path.exists():
        chosen = path.read_text()
        if chosen not in (DOCKER, PROCESS):
            raise pulumi.RunError(
                f"{path} holds {chosen!r}, must be {DOCKER} or {PROCESS}: write the runtime "
                "of this stack into it, or into the setting runtime"
            )
    else:
        chosen = DOCKER if docker_engine.answers() else PROCESS
        pulumi.log.info(f"runtime: {chosen} (setting runtime; auto takes docker when one answers)")
    RuntimeChoice("runtime", RuntimeChoiceArgs(path=str(path), runtime=chosen))
    return chosen
