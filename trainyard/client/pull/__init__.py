"""`train pull`: a run's results from the store to this machine."""
