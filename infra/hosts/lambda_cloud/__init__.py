"""Machines of Lambda Cloud: its API, and Pulumi resources on top."""
