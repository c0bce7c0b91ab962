"""Errors that a user can fix."""


class UserError(Exception):
    """Reports bad input in one line: what is wrong, in which file and line or option, and what to do about it.

    The command line prints it without a traceback and exits with status 2.
    """


class BucketError(UserError, OSError):
    """A service that does not answer or does not let us in: an OSError, for those who go on without it."""
