"""The status that a server answers a request with, also one that refuses it."""

import urllib.error
import urllib.request


def of(request: urllib.request.Request) -> int:
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
