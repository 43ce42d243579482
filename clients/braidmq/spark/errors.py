"""What the data source refuses, beside the errors of the client itself."""

from braidmq.errors import BraidMQError, InvalidArgument


class InvalidOption(InvalidArgument):
    """An option that the data source does not know, or a value that it cannot be."""


class DataLoss(BraidMQError):
    """Messages that were to be read are not there any more; `failOnDataLoss` set to false goes on without them."""
