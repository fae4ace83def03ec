"""KubeRay's definition of a RayCluster, and a check that it has all that we set."""

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

CHECKOUT = Path(__file__).parents[1]
# KubeRay's own (1.7) is not part of this project; some machines have it. The tests with a node use
# the one of 1.6 from its module.
PUBLISHED = Path(
    os.environ.get("TRAINYARD_RAYCLUSTER_CRD")
    or CHECKOUT.parent / "shared" / "kubernetes" / "ray.io_rayclusters.yaml"
)


def validate(manifest: Any) -> None:
    """Fail where the definition lacks a field, or has another type for it.

    Args:
        manifest: a RayCluster.
    """
    if not PUBLISHED.exists():
        pytest.skip(f"there is no {PUBLISHED.name}; TRAINYARD_RAYCLUSTER_CRD may name KubeRay's")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # 900 KB
    found = yaml.load(PUBLISHED.read_text(), Loader=loader)  # noqa: S506 (a safe one)
    version = next(each for each in found["spec"]["versions"] if each["name"] == "v1")
    schema = _closed(version["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}
    jsonschema.validate(json.loads(json.dumps(manifest)), schema)


def _closed(schema: Any) -> Any:
    """Return a schema that refuses the fields that an API server would drop without a word."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _closed(value) for key, value in schema.items()}
    opened = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object" and not opened:
        found["additionalProperties"] = False
    return found
