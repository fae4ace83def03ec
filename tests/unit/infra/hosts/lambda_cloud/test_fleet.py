"""Names of rented machines; the whole of them is in tests/unit/infra/test_target.py."""

import re

import pytest

from infra.hosts.lambda_cloud import fleet

HOSTNAME = re.compile(r"[a-z0-9][0-9a-z-]{0,62}")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@pytest.mark.parametrize(
    ("stack", "name"),
    [
        ("lambda", "lambda-0"),
        ("Team.A_2", "team-a-2-0"),
        ("_", "host-0"),
        ("$(touch /tmp/pwn);\n", "touch-tmp-pwn-0"),
        ("x" * 90, "x" * 60 + "-0"),
    ],
)
def test_any_stack_gives_a_host_name_that_the_api_takes(stack: str, name: str) -> None:  # F39
    assert fleet._hostname(stack, 0) == name
    assert HOSTNAME.fullmatch(fleet._hostname(stack, 63))
    assert NAME.fullmatch(fleet._name(f"trainyard-{stack}", 63))
