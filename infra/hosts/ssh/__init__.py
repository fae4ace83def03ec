"""Machines that are there already, reached by SSH."""
