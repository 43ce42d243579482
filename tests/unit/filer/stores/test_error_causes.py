"""Errors of stores name their cause in a word."""

import errno
import ssl

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError, EndpointConnectionError, NoCredentialsError

from filer.errors import OutcomeUnknown, StoreRefused
from filer.stores.local.os_errors import explain_os_error
from filer.stores.s3.s3_errors import explain_client_error, explain_connection_error


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, OutcomeUnknown),
        (errno.EMFILE, OutcomeUnknown),
        (errno.EFBIG, OutcomeUnknown),
        (errno.EROFS, StoreRefused),
        (errno.EACCES, StoreRefused),
    ],
)
def test_of_the_operating_system(number: int, kind: type[Exception]) -> None:
    error = explain_os_error(OSError(number, "why"), "it")
    assert isinstance(error, kind) and error.cause == errno.errorcode[number]


@pytest.mark.parametrize("status", [403, 503])
def test_of_an_answer(status: int) -> None:
    answer = {"Error": {"Code": "Why"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    assert explain_client_error(ClientError(answer, "PutObject"), "it").cause == str(status)  # type: ignore[arg-type]


def beneath(number: int) -> EndpointConnectionError:
    """As the libraries raise it: what the operating system said is at the bottom."""
    try:
        try:
            try:
                raise OSError(number, "why")
            except OSError as error:
                raise OSError("All connection attempts failed") from error
        except OSError as error:
            raise EndpointConnectionError(endpoint_url="http://s3", error=error) from error
    except EndpointConnectionError as error:
        return error


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ECONNREFUSED])
def test_of_a_connection_that_could_not_be_made(number: int) -> None:
    error = explain_connection_error(beneath(number), "it")
    assert isinstance(error, OutcomeUnknown)
    assert error.cause == errno.errorcode[number] and f"({errno.errorcode[number]})" in str(error)


@pytest.mark.parametrize(
    ("raised", "cause"),
    [
        (TimeoutError(), "timeout"),
        (ConnectTimeoutError(endpoint_url="http://s3"), "timeout"),
        (EndpointConnectionError(endpoint_url="http://s3"), "connection"),
        (NoCredentialsError(), "credentials"),
    ],
)
def test_of_no_answer(raised: Exception, cause: str) -> None:
    assert explain_connection_error(raised, "it").cause == cause  # type: ignore[arg-type]


def test_the_numbers_of_tls_are_not_those_of_the_system() -> None:
    error = EndpointConnectionError(endpoint_url="https://s3", error="WRONG_VERSION_NUMBER")
    error.__cause__ = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")
    told = explain_connection_error(error, "it")
    assert told.cause == "connection" and "not permitted" not in str(told)
