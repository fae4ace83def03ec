"""Embedded Pulumi engine: runs a Pulumi program where the pulumi CLI is not installed."""
