"""Answers of servers: JSON, or the status, also of a refusal."""

import json
import urllib.error
import urllib.request
from typing import Any


def ask(url: str, token: str = "", body: Any = None) -> Any:
    """Return the JSON that a server, such as Ray's dashboard, answers.

    Raises:
        OSError: it does not answer, or refuses.
    """
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def of(request: urllib.request.Request) -> int:
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
