"""Containers of this machine as a place of a stack."""
