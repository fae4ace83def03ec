"""One flat script per job; its top docstring gives its command.

The client reads the argparse calls at the top of a script without running it: docs/jobs.md.
`train new NAME` writes a script from _template.py.
"""
