"""Faults on purpose: `train drill` provokes one and compares the run with an undisturbed one."""
