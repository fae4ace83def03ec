"""Names of rented machines; the whole of them is in tests/unit/infra/places/test_target.py."""

import re

import pytest

from infra.machines import rented_machine

HOSTNAME = re.compile(r"[a-z0-9][0-9a-z-]{0,62}")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@pytest.mark.parametrize(
    ("stack", "owner", "name"),
    [
        ("lambda", "", "lambda-0"),
        ("Team.A_2", "", "team-a-2-0"),
        ("_", "", "host-0"),
        ("$(touch /tmp/pwn);\n", "", "touch-tmp-pwn-0"),
        ("x" * 90, "", "x" * 60 + "-0"),
        ("mltrain", "Net_ID", "mltrain-net-id-0"),
        ("_", "123", "123-0"),
        ("lambda", "\n李", "lambda-0"),
        ("x" * 90, "y" * 90, "x" * 43 + "-" + "y" * 16 + "-0"),
    ],
)
def test_any_stack_and_owner_give_a_host_name_that_the_api_takes(stack, owner, name):  # D4 F39
    title = rented_machine.title(stack, owner)
    assert rented_machine.hostname(title, 0) == name
    assert HOSTNAME.fullmatch(rented_machine.hostname(title, 63))
    title = rented_machine.title(f"trainyard-{stack}", owner)
    assert NAME.fullmatch(rented_machine.name(title, 63))
