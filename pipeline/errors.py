"""Errors that the user can fix."""


class UserError(Exception):
    """Bad input, in one line: what is wrong, in which file and line or option, and what to do about it.

    The command line prints it without a traceback and exits with status 2.
    """


class BucketError(UserError, OSError):
    """A service that does not answer or denies access; an OSError, for callers that can continue without it."""


class LostProcessError(UserError):
    """A process or a node was lost for good. The step is not at fault: a retry helps."""
