"""A Hydra launcher whose points run on a stack's Ray cluster: `hydra/launcher=ray`."""
