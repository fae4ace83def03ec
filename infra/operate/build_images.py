"""Builds images of docker/ for a registry that a cluster pulls from.

    python -m infra.operate.build_images registry.example/trainyard ray versitygw --push

The tag of each follows from its files and build arguments, so a changed image has a new one. The
last lines are the setting `images` that names them.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pulumi

from infra.operate.arguments import run
from infra.settings import build_context, images, versions
from infra.settings.containers import IMAGE
from trainyard.access import terminal

ARGUMENTS = ("BASE_IMAGE", "GO_IMAGE", "TORCH_BACKEND")


@dataclass(frozen=True, kw_only=True)
class Build:
    """How an image is built.

    Attributes:
        tag: it follows from both.
    """

    context: Path
    arguments: Mapping[str, str]
    tag: str


def build(program: str, build_args: Mapping[str, str]) -> Build:
    """Return how the image of a program, one of images.BUILT, is built."""
    context = build_context.folder(program, images.CONTEXTS)
    arguments = {
        name: build_args[name]
        for name, _ in images.ARGUMENT.findall((context / "Dockerfile").read_text())
        if name in build_args
    }
    arguments |= images.bases(program, build_args)  # policies look at them
    # Stacks with other build arguments do not share a tag.
    tag = build_context.digest(context, arguments)[: build_context.NAME_LENGTH]
    return Build(context=context, arguments=arguments, tag=tag)


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, and push if asked to; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.operate.build_images",
        description="Builds images of docker/ for a registry, and prints the setting for them.",
        allow_abbrev=False,
    )
    parser.add_argument("registry", help="registry and folder, such as registry.example/trainyard")
    programs = ", ".join(images.BUILT)
    parser.add_argument("programs", nargs="+", metavar="PROGRAM", help=f"one of {programs}")
    parser.add_argument(
        "--build-arg",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"one of {', '.join(ARGUMENTS)} (docs/configuration.md#images)",
    )
    parser.add_argument(
        "--python",
        choices=versions.IMAGE_BASES,
        default=versions.IMAGE_PYTHON,
        help="the images' Python, the setting imagePython (default: this environment's)",
    )
    parser.add_argument("--push", action="store_true", help="also push them, after `docker login`")
    given = parser.parse_args(arguments)
    build_args = dict(each.partition("=")[::2] for each in given.build_arg)
    if unknown := sorted(set(given.programs) - set(images.BUILT)):
        parser.error(f"unknown program {', '.join(unknown)}: it is one of {programs}")
    if unknown := sorted(build_args.keys() - set(ARGUMENTS)):
        parser.error(f"unknown build argument {', '.join(unknown)}: write one of the above")
    if not IMAGE.fullmatch(f"{given.registry}/x:1"):
        parser.error(f"{given.registry!r} must be [host[:port]/]folder, as docker push takes it")

    def act() -> int:
        names = {
            program: _made(given.registry, program, given.python, build_args, push=given.push)
            for program in dict.fromkeys(given.programs)
        }
        terminal.say("  trainyard:images:")
        for program, name in names.items():
            terminal.say(f"    {program}: {name}")
        return 0

    return run(act)


def _made(
    registry: str, program: str, python: str, build_args: Mapping[str, str], *, push: bool
) -> str:
    found = build(program, versions.build_arguments(python, build_args))
    name = f"{registry}/{program}:{found.tag}"
    options = [f"--build-arg={key}={value}" for key, value in found.arguments.items()]
    _docker("build", "--force-rm", f"--tag={name}", *options, os.path.relpath(found.context))
    if push:
        _docker("push", name)
    return name


def _docker(*arguments: str) -> None:
    """Run docker with its output on standard error; standard output has the setting only."""
    try:
        done = subprocess.run(["docker", *arguments], stdout=sys.stderr, check=False)
    except FileNotFoundError:
        raise pulumi.RunError("no docker on PATH: install a Docker Engine and its client") from None
    if done.returncode:
        raise pulumi.RunError(f"docker {arguments[0]} failed, for the reason above")


if __name__ == "__main__":
    sys.exit(main())
