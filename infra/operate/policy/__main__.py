"""The rules as a policy pack of the pulumi CLI: `pulumi up --policy-pack policy`.

The CLI starts this folder as a program, in the environment infra/operate/policy/.venv, so it
imports its neighbour by its bare name.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pulumi_policy import (
    EnforcementLevel,
    PolicyPack,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
)
from pulumi_policy import policy as sdk
from rules import RULES, Rule

# The SDK would drop the marks of secrets before a policy sees them, and one rule needs them.
sdk.deserialize_properties = lambda props, *_: props
TARGET = "__target"  # the SDK's name of the value in its wrappers


def unwrap(value: Any) -> Any:
    """Return a value without the SDK's wrappers, which raise errors for unknown values."""
    if isinstance(value, Mapping):
        inside = value if isinstance(value, dict) else value[TARGET]
        return {name: unwrap(item) for name, item in inside.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        inside = value if isinstance(value, list) else value[TARGET]
        return [unwrap(item) for item in inside]
    return value


def validate(rule: Rule, args: ResourceValidationArgs, report: ReportViolation) -> None:
    """Apply one rule to one resource."""
    for message in rule.check(args.resource_type, unwrap(args.props)):
        report(message, args.urn)


PolicyPack(
    "trainyard",
    [
        ResourceValidationPolicy(
            name=rule.name,
            description=rule.description,
            enforcement_level=EnforcementLevel(rule.level),
            validate=partial(validate, rule),
        )
        for rule in RULES
    ],
)
