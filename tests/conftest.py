"""What all tests have in common."""

import os

pytest_plugins = ["tests.cost"]

# Before PyTorch is loaded. Its threads wait by spinning: two of them beside other work on two
# cores cost ten times of what one does. Processes that tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
