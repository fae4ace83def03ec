"""The status of a server's answer, also of a refusal."""

import urllib.error
import urllib.request


def of(request: urllib.request.Request) -> int:
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
