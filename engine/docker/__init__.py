"""Resources of pulumi-docker, on a Docker Engine."""
