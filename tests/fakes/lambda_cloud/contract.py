"""Checks of requests and answers against Lambda's OpenAPI document.

The document here is Lambda's without its prose. It does not name 429, so that is not checked.
"""

import functools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openapi_core import OpenAPI
from openapi_core.datatypes import RequestParameters
from openapi_core.exceptions import OpenAPIError

DOCUMENT = Path(__file__).with_name("openapi-1.8.3.json")
HOST = "https://cloud.lambda.ai"


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request as openapi-core wants to see it."""

    method: str
    path: str
    body: bytes | None = None
    parameters: RequestParameters = field(
        default_factory=lambda: RequestParameters(header={"Authorization": "Bearer any"})
    )
    host_url: str = HOST
    content_type: str = "application/json"


@dataclass(frozen=True, kw_only=True)
class Response:
    """An answer as openapi-core wants to see it."""

    status_code: int
    data: bytes
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)


@functools.cache  # takes a second
def document() -> OpenAPI:
    """Return the document as openapi-core reads it."""
    return OpenAPI.from_dict(json.loads(DOCUMENT.read_text()))


def request_problem(method: str, path: str, body: bytes) -> str:
    """Return the fault of a request, "" for none."""
    request = Request(method=method.lower(), path=path, body=body or None)
    try:
        document().validate_request(request)
    except OpenAPIError as error:
        return _reason(error)
    return ""


def response_problem(method: str, path: str, status: int, content: Any) -> str:
    """Return the fault of an answer, "" for none."""
    request = Request(method=method.lower(), path=path)
    response = Response(status_code=status, data=json.dumps(content).encode())
    try:
        document().validate_response(request, response)
    except OpenAPIError as error:
        return _reason(error)
    return ""


def _reason(error: OpenAPIError) -> str:
    found = getattr(error.__cause__, "schema_errors", None)
    if not found:
        return str(error)
    return "; ".join(f"{each.json_path}: {each.message}" for each in found)
