"""The meaning of a reply of Lambda Cloud's API, or of none: which error it is, if any.

The client words the error, and pacing decides whether the request is sent again. Both decide by
the same functions.
"""

import email.utils
import math
import time
from collections.abc import Callable
from typing import Any, TypeVar

import httpx

from infra.hosts.lambda_cloud.decoding import UnexpectedError
from infra.hosts.lambda_cloud.errors import (
    LambdaError,
    LostReplyError,
    RedirectedError,
    ServerError,
    UnreachableError,
    error_class,
)

# Raised before anything of the request went out.
NOT_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)

T = TypeVar("T")


def fault(
    outcome: httpx.Response | httpx.HTTPError, decode: Callable[[Any], object]
) -> type[LambdaError] | None:
    """Return the class of error that a request ended in, None if it ended well.

    Args:
        outcome: a response that was read, or what was raised in its place.
        decode: takes the `data` of a success; raises UnexpectedError if it is not of this request.
    """
    if isinstance(outcome, NOT_SENT):
        return UnreachableError
    if isinstance(outcome, httpx.HTTPError):
        return ServerError if isinstance(outcome, httpx.DecodingError) else LostReplyError
    if outcome.status_code == 200:
        try:
            decoded(outcome, decode)
        except UnexpectedError:
            return ServerError
        return None
    if 300 <= outcome.status_code < 400:
        return RedirectedError
    code, _, _ = problem(outcome)
    return error_class(outcome.status_code, code)


def decoded(response: httpx.Response, decode: Callable[[Any], T]) -> T:
    """Return the decoded data of a success.

    Raises:
        UnexpectedError: it is not of the API, or not of this request.
    """
    try:
        content = response.json()
        if not isinstance(content, dict) or "data" not in content:
            raise UnexpectedError("no `data`")
        return decode(content["data"])
    # RecursionError: JSON that is nested too deeply.
    except (ValueError, RecursionError) as error:
        raise UnexpectedError("no JSON") from error


def problem(response: httpx.Response) -> tuple[str, str, str]:
    """Return code, message and suggestion of a refusal, a line each, "" for missing ones."""
    try:
        error = response.json()["error"]
        texts = [error.get(key) for key in ("code", "message", "suggestion")]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return "", "", ""
    code, message, suggestion = (line(text) if isinstance(text, str) else "" for text in texts)
    return code, message, suggestion


def retry_after(response: httpx.Response) -> float | None:
    """Return the seconds that a refusal asks to wait, None if it asks for nothing."""
    header = response.headers.get("Retry-After", "")
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(header).timestamp() - time.time()
        except (ValueError, TypeError):
            return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def line(text: str) -> str:
    """Return a text in one line, without unprintable characters."""
    return "".join(each for each in " ".join(text.split()) if each.isprintable())
