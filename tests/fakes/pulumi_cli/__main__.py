"""See the package: the embedded engine's command line, with processes where the CLI has them."""

import contextlib
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import engine.operation
from engine import cli
from engine.context import DYNAMIC_PACKAGE, Context
from engine.errors import EngineError
from engine.project import Project, read_settings
from engine.providers import Provider
from tests.fakes.pulumi_cli.host import Host
from tests.fakes.pulumi_cli.program import run_program, serving

SKIP = "--skip-preview"
OF_UP = ("--yes", "-y", "--expect-no-changes")  # what a preview has no use for
OPEN = ExitStack()  # hosts, and what they are told the address of


class CliContext(Context):
    """One operation, whose dynamic providers are in a host."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._host: Host | None = None

    def cancel(self) -> None:
        super().cancel()
        if self._host is not None:
            self._host.cancel()

    def _make_provider(self, package: str, type_: str) -> Provider:
        if package != DYNAMIC_PACKAGE:
            return super()._make_provider(package, type_)
        self._host = Host(
            self.project,
            self._config,
            read_settings(self.project, self.stack).secret_keys,
            OPEN.enter_context(serving(self)),
            lambda line: self.display.message("info", line, ""),
        )
        OPEN.callback(self._host.close)
        return self._host


@contextmanager
def elsewhere(project: Project) -> Iterator[str]:
    """Work where the CLI starts plugins, whose paths may be relative; import nothing from there."""
    with contextlib.chdir(project.main):
        yield ""


def refuse(_: Context, interrupted: list[dict[str, Any]]) -> None:
    if interrupted:
        raise EngineError(f"{len(interrupted)} operations were interrupted")


def main() -> int:
    """Run one command; its exit code."""
    engine.operation.Context = CliContext
    engine.operation.run_program = run_program
    engine.operation.program_folder = elsewhere
    engine.operation.recover = refuse
    words = sys.argv[1:]
    with OPEN:
        if "up" in words and SKIP not in words:
            preview = ["preview" if word == "up" else word for word in words if word not in OF_UP]
            if code := cli.main(preview):
                return code
        return cli.main([word for word in words if word != SKIP])


if __name__ == "__main__":
    sys.exit(main())
