"""Pulumi's inputs: values that are known at once, or only once something exists."""

from collections.abc import Callable
from typing import Any

import pulumi


def lift(function: Callable[..., Any], *arguments: pulumi.Input[Any]) -> Any:
    """Return function(*arguments); an Output of it if any argument is one."""
    if any(isinstance(argument, pulumi.Output) for argument in arguments):
        return pulumi.Output.all(*arguments).apply(lambda known: function(*known))
    return function(*arguments)


def join(*parts: pulumi.Input[str]) -> pulumi.Input[str]:
    """Return the parts as one text."""
    text: pulumi.Input[str] = lift(lambda *known: "".join(known), *parts)
    return text
