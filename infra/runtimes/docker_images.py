"""Images of the programs: built here from docker/<program>, or taken as they are named."""

import os
from collections.abc import Mapping

import pulumi
import pulumi_docker as docker

from infra import build_images

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
            # Other stacks, and the next `up` of this one, use the same image.
            return docker.RemoteImage(
                name, name=self._named[program], keep_locally=True, opts=self._opts
            )
        # The tag follows from the inputs of the image, so that it is rebuilt when they change
        # and only then.
        build = build_images.build(program, self._build_args)
        return docker.RemoteImage(
            name,
            name=f"{REPOSITORY}/{program}:{build.tag}",
            build=docker.RemoteImageBuildArgs(
                # From the folder of the program, as engines take it: the state of one machine is
                # then good on another.
                context=os.path.relpath(build.context),
                build_args=build.arguments,
                force_remove=True,  # also the containers of a build that fails
            ),
            keep_locally=True,
            opts=self._opts,
        )
