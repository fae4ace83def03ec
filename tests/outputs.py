"""The names of everything that a stack exports."""

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
        outputs.SERVICES: [endpoint.described for endpoint in services.ENDPOINTS],
    }
