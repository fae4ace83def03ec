"""`conda env create|update --prefix FOLDER --file FILE`, and `conda env list --json`.

In place of the file's own list for pip, the environment sees the packages of the folder SITE.
"""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

import yaml
from rattler import install, solve

parser = argparse.ArgumentParser(prog="conda")
parser.add_argument("site", metavar="SITE")
parser.add_argument("env", choices=["env"])
parser.add_argument("action", choices=["create", "list", "update"])
for option in ("--json", "--prune", "--quiet"):
    parser.add_argument(option, action="store_true")
parser.add_argument("--prefix", type=Path)
parser.add_argument("--file", type=Path)


async def main() -> None:
    given = parser.parse_args()
    if given.action == "list":
        sys.stdout.write(json.dumps({"envs": []}))
        sys.stdout.flush()
        return
    if given.prefix.exists() == (given.action == "create"):
        parser.error(f"{given.action}: {given.prefix} is there, or not")
    wanted = yaml.safe_load(given.file.read_text())
    asked = [each for each in wanted["dependencies"] if isinstance(each, str)]
    found = await solve(wanted["channels"], asked, platforms=["linux-64", "noarch"])
    await install(found, given.prefix)
    if len(asked) < len(wanted["dependencies"]):
        (own,) = given.prefix.glob("lib/python*/site-packages")
        (own / "site.pth").write_text(given.site)


asyncio.run(main())
os._exit(0)  # rattler's threads may crash an interpreter that ends
