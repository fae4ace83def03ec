"""KubeRay's definition of a RayCluster, and a check that it has all that we set."""

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import yaml

CHECKOUT = Path(__file__).parents[1]
# KubeRay's own is not part of this project; some machines have it.
PUBLISHED = Path(
    os.environ.get("TRAINYARD_RAYCLUSTER_CRD")
    or CHECKOUT.parent / "shared" / "kubernetes" / "ray.io_rayclusters.yaml"
)
OURS = CHECKOUT / "tests" / "fakes" / "kubernetes" / "crd.yaml"


def validate(manifest: Any, definition: Path) -> None:
    """Fail where the definition lacks a field, or has another type for it.

    Args:
        manifest: a RayCluster.
        definition: file of the CustomResourceDefinition.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # 900 KB
    found = yaml.load(definition.read_text(), Loader=loader)  # noqa: S506 (a safe one)
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
