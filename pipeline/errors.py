"""The one exception for what a user can mend."""


class UserError(Exception):
    """Bad input, said in one line: what is wrong, in which file and line or which option, and what to do.

    The command line prints it without a traceback and exits with status 2.
    """
