"""Existing machines, reached by SSH."""
