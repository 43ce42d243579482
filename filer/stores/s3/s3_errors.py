"""Maps the errors of S3, and of the connection to it, to the errors of a store."""

import errno
import os
import ssl

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConfigNotFound,
    ConnectTimeoutError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    ReadTimeoutError,
    SSLError,
)

from filer.errors import ObjectNotFound, OutcomeUnknown, StoreError, StoreRefused

_WRONG_SETUP = (
    ConfigNotFound,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
)
_HINTS = {
    301: "the bucket is in another region; set the store's region",
    307: "the bucket is in another region; set the store's region",
    400: "the store does not accept the request",
    403: "check the credentials, their expiry, and the clock of this machine (NTP)",
    405: "the store does not know the request",
    501: "the store does not know the request; it must honour If-None-Match and If-Match on a put",
}
_EXPIRED = "the credentials have expired: renew them, the session token too"
_HINTS_BY_CODE = {
    "AccessDenied": "the credentials need s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket",
    "ExpiredToken": _EXPIRED,
    "InvalidAccessKeyId": "the store does not know the access key: check AWS_ACCESS_KEY_ID, or AWS_PROFILE",
    "InvalidToken": _EXPIRED,
    "RequestTimeTooSkewed": "the clock of this machine is off: run a time service (NTP)",
    "SignatureDoesNotMatch": "the secret key is wrong (AWS_SECRET_ACCESS_KEY), or a proxy changes what is sent",
    "TokenRefreshRequired": _EXPIRED,
}
"""The code counts before the status: most of these have status 403."""
PRECONDITION_FAILED = 412
INVALID_RANGE = 416
NOT_FOUND = 404
# Some 4xx are temporary: the server gave up waiting, or asks the client to slow down.
_TEMPORARY_CODES = {"RequestTimeout", "SlowDown", "Throttling", "ThrottlingException", "OperationAborted"}
TEMPORARY_STATUSES = {408, 409, 425, 429}
# The most libraries that an error passes through.
_DEEPEST = 20


def status_of(error: ClientError) -> int:
    """The HTTP status of the answer."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def code_of(error: ClientError) -> str:
    """S3's code of the error, such as `NoSuchKey`; empty if the answer had no body."""
    code = str(error.response.get("Error", {}).get("Code", ""))
    return "" if code.isdigit() else code


def is_temporary(error: ClientError) -> bool:
    """Whether the answer says that the same request may be served later: it decides nothing."""
    status = status_of(error)
    unknown = status >= 500 and status not in _HINTS
    return code_of(error) in _TEMPORARY_CODES or status in TEMPORARY_STATUSES or unknown


def explain_client_error(error: ClientError, what: str) -> StoreError:
    """The store error for an error answer of S3: `ObjectNotFound`, `StoreRefused` or `OutcomeUnknown`."""
    status, code = status_of(error), code_of(error)
    message = f"{what}: the store answered {status} {code}".rstrip()
    if status == NOT_FOUND:
        if code == "NoSuchBucket":
            return StoreRefused(f"{message}: there is no such bucket; create it or name another", cause=code)
        return ObjectNotFound(f"{message}: there is no such object")
    if is_temporary(error):
        return OutcomeUnknown(message, cause=str(status))
    detail = error.response.get("Error", {}).get("Message", "")
    hint = _HINTS_BY_CODE.get(code) or _HINTS.get(status, "")
    told = ": ".join(part for part in (message, detail, hint) if part)
    return StoreRefused(told, cause=str(status))


def explain_connection_error(error: BotoCoreError | TimeoutError, what: str) -> StoreError:
    """The store error if no answer came: `StoreRefused` for a wrong setup on our side, else `OutcomeUnknown`."""
    if isinstance(error, TimeoutError):
        return OutcomeUnknown(f"{what}: no answer in time", cause="timeout")
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        return StoreRefused(
            f"{what}: {error}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give the "
            "machine a role",
            cause="credentials",
        )
    if isinstance(error, _WRONG_SETUP) or (isinstance(error, SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error)):
        return StoreRefused(f"{what}: {error}", cause="setup")
    if isinstance(error, ConnectTimeoutError | ReadTimeoutError):
        return OutcomeUnknown(f"{what}: {error}", cause="timeout")
    number = _errno_beneath(error)
    if number not in errno.errorcode:
        return OutcomeUnknown(f"{what}: {error}", cause="connection")
    # The libraries above report only that they could not connect.
    cause = errno.errorcode[number]
    return OutcomeUnknown(f"{what}: {error}: {os.strerror(number)} ({cause})", cause=cause)


def _errno_beneath(error: BaseException) -> int:
    """The number of the innermost error of the operating system that led to this one; 0 if there is none."""
    found = 0
    beneath: BaseException | None = error
    for _ in range(_DEEPEST):
        if beneath is None:
            break
        # Errors of TLS are of that class too, but their numbers are not the system's.
        if isinstance(beneath, OSError) and not isinstance(beneath, ssl.SSLError):
            found = beneath.errno or found
        beneath = beneath.__cause__ or beneath.__context__
    return found
