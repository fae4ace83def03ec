"""`python -m trainyard.client` is the same as `train`."""

from trainyard.client.cli import main

main()
