"""The error of a machine that cannot have a cluster."""


class NoKubernetesError(Exception):
    """A cluster is not possible here; the message says why, and what would help."""
