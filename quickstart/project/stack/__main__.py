"""The program of the stack: Trainyard's own, from the installed package."""

import runpy

runpy.run_module("infra", run_name="__main__")
