"""WHERE things run: hosts, runtimes and the Pulumi program that wires services to them."""

import gc

# Its commands are short, and their modules stay: looking for garbage took a tenth of their time.
gc.set_threshold(50_000)
