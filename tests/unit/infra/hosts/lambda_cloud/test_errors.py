"""The class of an error is that of its code."""

import pytest

from infra.hosts.lambda_cloud import errors
from infra.hosts.lambda_cloud.errors import error_class


@pytest.mark.parametrize(("code", "expected"), errors.BY_CODE.items())
def test_a_known_code_decides_whatever_the_status(code, expected):
    assert error_class(400, code) is expected
    assert error_class(500, code) is expected


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (429, "", errors.RateLimitedError),
        (429, "global/something", errors.RateLimitedError),
        (401, "", errors.InvalidApiKeyError),
        (403, "", errors.AccountError),
        (404, "", errors.ServerError),  # not "already deleted"
        (400, "", errors.ServerError),
        (500, "", errors.ServerError),
        (502, "provider/internal-unavailable", errors.ServerError),
        (400, "provider/internal-unavailable", errors.ServerError),
        (400, "global/of-tomorrow", errors.LambdaError),
        (503, "global/of-tomorrow", errors.ServerError),
    ],
)
def test_without_a_known_code_the_status_decides(status, code, expected):
    assert error_class(status, code) is expected
