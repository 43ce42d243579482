"""Errors of jobs, besides those of `filer`."""

from filer.errors import BraidError


class JobFailed(BraidError):
    """The job could not do its work."""


class WrongUsage(BraidError):
    """The command line is not valid."""
