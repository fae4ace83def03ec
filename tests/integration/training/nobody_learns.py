"""For processes of the Food-11 course in which nobody learns: half of their time goes into imports.

Scripts of test_food11.py are uploaded with the folder that they are in, and import it from there.
"""

import sys
from unittest.mock import MagicMock

LEARNING = (
    "lightning",
    "lightning.pytorch",
    "lightning.pytorch.callbacks",
    "ray.train.lightning",
    "training.callbacks",
    "training.data.food11",
    "training.models.mobilenet",
)


def stand_in() -> None:
    """Puts something into the place of all that only learning needs, and that is slow to import."""
    sys.modules.update({name: MagicMock() for name in LEARNING})
