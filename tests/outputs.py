"""The names of everything that a stack exports, and the outputs of one without services."""

import sys
from pathlib import Path
from typing import Any

from cluster import services
from trainyard.access import outputs


def names_of_outputs() -> set[str]:
    """Names of the stack's own outputs, and of its services' possible outputs."""
    values = (value for name, value in vars(outputs).items() if name.isupper())
    own = {value for value in values if isinstance(value, str)}
    return own.union(*(endpoint.outputs for endpoint in services.ENDPOINTS))


def of_services() -> dict[str, Any]:
    """The outputs of services when none runs."""
    names = {name for endpoint in services.ENDPOINTS for name in endpoint.outputs}
    return {
        **dict.fromkeys(names, ""),
        outputs.SERVICES: [endpoint.entry for endpoint in services.ENDPOINTS],
    }


def of_stack(address: str, store: Path) -> dict[str, Any]:
    """The outputs of a stack of this machine that has a dashboard and a folder, but no nodes."""
    return {
        **outputs.NOTHING,
        **of_services(),
        outputs.PROJECT: "trainyard",
        outputs.STACK: "dev",
        outputs.DASHBOARD_URL: address,
        outputs.RAY_TOKEN: "canary-token-0123456789",
        outputs.STORAGE_URL: store.as_uri(),
        outputs.SERVE_TOKEN: "canary-serve-token",
        outputs.RAY_VERSION: "2.60.0",
        outputs.PYTHON_VERSION: ".".join(map(str, sys.version_info[:2])),
        outputs.OWNER: "ada",
        outputs.JOB_START_TIMEOUT_SECONDS: 900,
    }
