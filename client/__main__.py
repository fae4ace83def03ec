"""`python -m client` is the same as `train`."""

from client.cli import main

main()
