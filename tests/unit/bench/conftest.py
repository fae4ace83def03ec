"""`bench` is used from the checkout only, which a pytest started by its own name does not see."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3]))
