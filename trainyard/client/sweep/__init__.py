"""Sweeps: many points of one script on a stack's cluster. Knows nothing of Hydra."""
