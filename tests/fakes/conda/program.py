"""`conda env create|update --prefix FOLDER --file FILE`, without the file's own list for pip."""

import argparse
import asyncio
import os
from pathlib import Path

import yaml
from rattler import install, solve

parser = argparse.ArgumentParser(prog="conda")
parser.add_argument("env", choices=["env"])
parser.add_argument("action", choices=["create", "update"])
parser.add_argument("--prune", action="store_true")
parser.add_argument("--quiet", action="store_true")
parser.add_argument("--prefix", required=True, type=Path)
parser.add_argument("--file", required=True, type=Path)


async def main() -> None:
    given = parser.parse_args()
    if given.prefix.exists() == (given.action == "create"):
        parser.error(f"{given.action}: {given.prefix} is there, or not")
    wanted = yaml.safe_load(given.file.read_text())
    platforms = ["linux-64", "noarch"]
    found = await solve(wanted["channels"], wanted["dependencies"], platforms=platforms)
    await install(found, given.prefix)


asyncio.run(main())
os._exit(0)  # rattler's threads may crash an interpreter that ends
