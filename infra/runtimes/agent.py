"""Does on this machine what a provider on another one asks for; runs there for one call.

    python -m infra.runtimes.agent < request.json

Reads {"kind", "method", "arguments"}, prints {"result"} or {"error"} as the last line. Secrets are
in the request, so it comes by standard input: a command line could be read by others.
"""

import json
import sys

from infra.runtimes.programs import KINDS


def main() -> int:
    """Answer one request."""
    request = json.load(sys.stdin)
    try:
        result = getattr(KINDS[request["kind"]], request["method"])(*request["arguments"])
        answer = {"result": result}
    except Exception as error:  # whatever goes wrong is the provider's to tell
        answer = {"error": str(error) or repr(error)}
    print(json.dumps(answer))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
