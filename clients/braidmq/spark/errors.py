"""Errors of the data source, in addition to those of the client."""

from braidmq.errors import BraidMQError, InvalidArgument


class InvalidOption(InvalidArgument):
    """An option that the data source does not have, or a value that is not valid for it."""


class DataLoss(BraidMQError):
    """Messages to read do not exist any more. With `failOnDataLoss` set to false, reads go on without them."""
