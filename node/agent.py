"""Does the work of a provider on another machine; runs on this one for one call.

    python -m node.agent < request.json

Reads {"kind", "method", "arguments"}, prints {"result"} or {"error"} as the last line. Secrets are
in the request, so it comes by standard input: others could read a command line.
"""

import json
import sys

from node.programs import KINDS


def main() -> int:
    """Answer one request."""
    request = json.load(sys.stdin)
    try:
        result = getattr(KINDS[request["kind"]], request["method"])(*request["arguments"])
        answer = {"result": result}
    except Exception as error:  # the provider reports any failure
        answer = {"error": str(error) or repr(error)}
    print(json.dumps(answer))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
