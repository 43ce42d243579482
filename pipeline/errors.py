"""What a job fails with, besides the errors of `filer`."""

from filer.errors import BraidError


class JobFailed(BraidError):
    """The job could not do what was asked."""


class WrongUsage(BraidError):
    """The command line makes no sense."""
