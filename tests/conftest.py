"""The settings of all tests."""

import atexit
import contextlib
import gc
import getpass
import os
import signal
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.again", "tests.cost", "tests.landings"]

# Before PyTorch is loaded. Its threads wait by spinning: two of them next to other work on two
# cores cost ten times as much as one. Processes that tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Otherwise PyTorch makes a folder of the user's in /tmp, and leaves it there.
CACHE = Path(__file__).parents[1] / ".pytest_cache" / "torchinductor"
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(CACHE))

# `timeout` and CI end tests with SIGTERM: like Ctrl-C it lets fixtures end what they started.
signal.signal(signal.SIGTERM, signal.default_int_handler)
# A shell without a terminal has background jobs ignore Ctrl-C, and what they start inherits it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# An example that takes long on a busy machine is not a fault.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

# Objects that imports make stay: to scan them again and again costs seconds of processor time.
gc.disable()
atexit.register(gc.unfreeze)  # otherwise libraries report it as leaked


def pytest_unconfigure() -> None:
    """Leave nothing where all tests passed: pytest keeps the parent of the folders it removes."""
    with contextlib.suppress(OSError):  # it has files of failed tests, or is another part's
        Path(tempfile.gettempdir(), f"pytest-of-{getpass.getuser()}").rmdir()


def pytest_collection_finish() -> None:
    """From here on, look for garbage, and only in the tests' objects."""
    gc.freeze()
    gc.enable()
