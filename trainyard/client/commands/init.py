"""`train init`."""

from pathlib import Path
from typing import Annotated

import typer

from trainyard.client.console import say


def init(
    folder: Annotated[Path, typer.Argument(help="Your repository; created if missing.")] = Path(),
) -> None:
    """Write a project into your own repository; unchanged, it trains."""
    from trainyard.quickstart import init as project

    say(f"wrote {', '.join(str(path) for path in project.write(folder))}")
    say(f"next, in {folder.resolve()}:")
    for command, effect in project.NEXT:
        say(f"  {command:<60}  {effect}")
