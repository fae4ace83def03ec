"""Images of the programs: built here from docker/<program>, or taken as they are named."""

import os
from collections.abc import Mapping

import pulumi
import pulumi_docker as docker

from infra import build_context, images

REPOSITORY = "trainyard"


class Images:
    """The images of one stack, each declared once and only when a service needs it.

    Args:
        named: references of images that are pulled, or are already there, by program; the others
            are built.
        build_args: build arguments of every image that is built.
        opts: of each image.
    """

    def __init__(
        self,
        named: Mapping[str, str],
        build_args: Mapping[str, str],
        opts: pulumi.ResourceOptions,
    ) -> None:
        self._named, self._build_args, self._opts = named, build_args, opts
        self._declared: dict[str, docker.RemoteImage] = {}

    def image(self, program: str) -> pulumi.Output[str]:
        """Return the ID of a program's image."""
        if program not in self._declared:
            self._declared[program] = self._declare(program)
        return self._declared[program].image_id

    def _declare(self, program: str) -> docker.RemoteImage:
        name = f"image-{program}"
        if program in self._named:
            # Other stacks, and the next `up` of this one, use the same image: it is no litter.
            return docker.RemoteImage(
                name, name=self._named[program], keep_locally=True, opts=self._opts
            )
        context = build_context.folder(program, images.CONTEXTS)
        build_args = {
            name: self._build_args[name]
            for name, _ in images.ARGUMENT.findall((context / "Dockerfile").read_text())
            if name in self._build_args
        }
        # Those of the Dockerfile itself are no arguments, unless a digest is added to them.
        bases = images.bases(program, self._build_args)
        build_args |= {name: base for name, base in bases.items() if "@" in base}
        # The tag follows from what the image is made of, so that it is built anew when that
        # changes and only then, and stacks with other build arguments do not share a tag.
        tag = build_context.digest(context, build_args)[: build_context.NAME_LENGTH]
        return docker.RemoteImage(
            name,
            name=f"{REPOSITORY}/{program}:{tag}",
            build=docker.RemoteImageBuildArgs(
                # From the folder of the program, as engines take it: the state of one machine is
                # then good on another.
                context=os.path.relpath(context),
                build_args=build_args,
                force_remove=True,  # also the containers of a build that fails
            ),
            keep_locally=True,
            opts=self._opts,
        )
