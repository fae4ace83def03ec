"""Serves a run's checkpoint: what runs on the cluster, as an application of Ray Serve."""

TOKEN_FILE_VARIABLE = "TRAINYARD_SERVE_TOKEN_FILE"  # noqa: S105 - a name; of every node
