"""What the workflows in .github do beside `make`: which stacks, one comment, one issue, which plan.

It needs nothing but Python and git, so that a job can start with it.
"""
