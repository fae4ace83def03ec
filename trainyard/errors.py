"""The error of jobs."""


class JobError(Exception):
    """A job cannot go on, and retrying does not help. The text says what to do.

    It ends the job with one line, and Ray Train does not restart the workers.
    """
