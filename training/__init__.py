"""One flat script per job; its top docstring gives its command.

ARGUMENTS and RESOURCES at the top of a script are literals, which the client reads without running
it (trainyard/options.py). `train new NAME` writes a script from _template.py.
"""
