"""Errors of jobs, besides those of `filer`."""

from filer.errors import BraidError


class JobFailed(BraidError):
    """The job could not do what was asked."""


class WrongUsage(BraidError):
    """The command line is not valid."""
