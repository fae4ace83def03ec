"""This machine as a place of a stack."""
