"""The errors of Lambda Cloud's API, by the code in its answer.

Messages are for people and change; nothing here or elsewhere looks at them.
"""

import pulumi

CAPACITY = "instance-operations/launch/insufficient-capacity"
UPSTREAM = "provider/"  # begins the codes of a fault behind the API


class LambdaError(pulumi.RunError):
    """A call failed; raised itself where no class below fits.

    A RunError, so that it ends a program with its message and no traceback.

    Attributes:
        status: HTTP status, None if there was no answer.
        code: `error.code` of the answer, "" if it has none.
    """

    def __init__(self, text: str, *, status: int | None = None, code: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.code = code


class AccessError(LambdaError):
    """The API key is missing, malformed or refused, or the account may not do this."""


class InsufficientCapacityError(LambdaError):
    """That region has no such machine now, whatever the list of types said."""


class NotFoundError(LambdaError):
    """The API says that the thing does not exist."""


class InUseError(LambdaError):
    """An instance uses the thing, so it cannot be deleted."""


class RateLimitedError(LambdaError):
    """Too many requests.

    Attributes:
        retry_after: seconds to wait, None if the answer does not tell.
    """

    retry_after: float | None = None


class ServerError(LambdaError):
    """A fault of the other side, or an answer not of the API. A change may have been made."""


class LostReplyError(LambdaError):
    """No whole answer came after the request went out. A change may have been made."""


class UnreachableError(LambdaError):
    """No connection: nothing was sent."""


BY_CODE: dict[str, type[LambdaError]] = {
    "global/invalid-api-key": AccessError,
    "global/account-inactive": AccessError,
    "global/invalid-address": AccessError,
    "global/object-does-not-exist": NotFoundError,
    "global/internal-error": ServerError,
    "global/rate-limited": RateLimitedError,
    CAPACITY: InsufficientCapacityError,
    "filesystems/filesystem-in-use": InUseError,
    "firewall-rulesets/firewall-ruleset-in-use": InUseError,
    # Refusals, even with a status of 500: they may not be taken for a fault that passes.
    "global/invalid-parameters": LambdaError,
    "global/quota-exceeded": LambdaError,
    "global/duplicate": LambdaError,
    "instance-operations/launch/file-system-in-wrong-region": LambdaError,
}


def error_class(status: int, code: str) -> type[LambdaError]:
    """Return the class of an answer other than success.

    A 404 without the API's own code is not a NotFoundError: it comes from something in between, and
    would be taken for "already deleted".
    """
    if status == 429:
        return RateLimitedError
    if code in BY_CODE:
        return BY_CODE[code]
    if status in (401, 403):
        return AccessError
    if status >= 500 or not code or code.startswith(UPSTREAM):
        return ServerError
    return LambdaError
