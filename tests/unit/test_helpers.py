"""The helpers of tests of secrets, of ports and of waits find what they look for."""

import base64
import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.listening import kernel_chooses, listeners
from tests.ports import FIRST, LAST, SHARES
from tests.secret_hunt import finds

SECRET = "canary/+ =ä0123456789"


@given(st.binary(max_size=7), st.binary(max_size=7))
def test_a_secret_is_found_inside_what_is_encoded(before, after):  # F35
    raw = before + SECRET.encode() + after
    for coded in (raw, base64.b64encode(raw), base64.urlsafe_b64encode(raw), raw.hex().encode()):
        assert finds({"it": SECRET}, [("here", b"x" + coded + b"y")]) == ["it in here"]
    quoted = f"https://a/?token={quote(SECRET, safe='')}".encode()
    assert finds({"it": SECRET}, [("here", quoted)]) == ["it in here"]


def test_what_is_no_secret_is_not_found():
    assert finds({"it": SECRET}, [("here", base64.b64encode(b"canary" * 50))]) == []


@pytest.mark.parametrize(
    ("family", "address"), [(socket.AF_INET, "127.0.0.5"), (socket.AF_INET6, "::1")]
)
def test_who_listens_is_seen(family, address):  # F33
    try:
        server = socket.create_server((address, 0), family=family)
    except OSError as error:
        pytest.skip(f"no {address} here: {error}")
    with server:
        port = server.getsockname()[1]
        [found] = [each for each in listeners([os.getpid()]) if each.port == port]
    assert found.address == address
    assert found.program
    assert kernel_chooses(port)
    assert not [each for each in listeners([os.getpid()]) if each.port == port]


def test_processes_side_by_side_choose_ports_of_their_own():
    # With names of their own: other tests on this machine may have all shares of the usual ones.
    script = "import sys; from tests import ports; ports.MARK = sys.argv[1]"
    script += "; print(*ports.free_ports(9)); input()"
    command = [sys.executable, "-c", script, f"test-{os.getpid()}"]
    with ExitStack() as both:
        processes = [
            both.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for _ in range(2)
        ]
        one, other = ([int(port) for port in each.stdout.readline().split()] for each in processes)
        for each in processes:
            each.communicate("\n")
    size = (LAST - FIRST) // SHARES
    shares = {(port - FIRST) // size for port in one} & {(port - FIRST) // size for port in other}
    assert not shares, (one, other)


def test_tests_that_are_ended_clean_up():
    with pytest.raises(KeyboardInterrupt):  # pytest ends all fixtures then
        signal.raise_signal(signal.SIGTERM)
