"""The steps of the workflows in .github: stacks, comments, issues and plans.

It needs only Python and git, so a job can start with it.
"""


class GitopsError(Exception):
    """A step cannot be done; the message says what to do."""
