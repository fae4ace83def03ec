"""The steps of the workflows in .github: stacks, comments, issues and plans.

It needs only Python and git, so a job can start with it.
"""
