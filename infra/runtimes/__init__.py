"""Runtimes: services on hosts and in clusters."""
