"""The life of a service, whatever runs it: waited for, looked at, and left by its users."""
