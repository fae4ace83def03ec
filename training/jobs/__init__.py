"""One flat script a job; its top docstring gives its command.

A script may offer `resources(arguments) -> list[dict[str, float]]`: what each of its workers asks
for, in Ray's resource names. The client calls it before anything is sent, so scripts import
nothing heavy at their top.
"""
