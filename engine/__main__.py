"""`python -m engine`: see `python -m engine --help`."""

import gc
import sys

# Python would look for garbage some 200 times, a tenth of an `up`, among modules that all stay.
gc.set_threshold(50_000)

from engine.cli import main  # noqa: E402

sys.exit(main())
