"""Resuming a run: checkpoints, positions, lost workers."""
