"""`python -m training` is the same as `train`."""

from training.client.cli import main

main()
