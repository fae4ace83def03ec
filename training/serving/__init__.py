"""Serves a run's checkpoint: what runs on the cluster, as an application of Ray Serve."""
