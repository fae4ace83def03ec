"""Rules that a stack must keep, for both engines."""
