"""`python -m engine`: see `python -m engine --help`."""

import sys

from engine.cli import main

sys.exit(main())
