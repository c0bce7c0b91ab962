"""The one exception for errors that a user can fix."""


class UserError(Exception):
    """Reports bad input in one line: what is wrong, in which file and line or option, and what to do about it.

    The command line prints it without a traceback and exits with status 2.
    """
