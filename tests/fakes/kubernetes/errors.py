"""The error of a machine that cannot have a cluster."""


class NoKubernetesError(Exception):
    """A cluster cannot be had here; the message says why, and what would help."""
