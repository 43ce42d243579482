"""The error for an exchange that failed without an answer, with the cause, in words that say what to do."""

import os
import ssl

import httpx

from braidmq.errors import BraidMQError, ConnectionBroken, NoConnection, OutcomeUnknown

MAX_CONNECTIONS = 1000
# A server's messages about the certificate of a client. With TLS 1.3 they come when the client has begun to send;
# before the server accepts the certificate, it reads nothing that was sent.
_OF_CLIENTS = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it demands a certificate of the client",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "it demands something else, perhaps a certificate of the client",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the CA of the client's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not take the client's certificate",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "it does not take the client's certificate: it is for another purpose",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client's certificate has expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "the client's certificate is revoked",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not take the client's certificate",
}
_WRONG_NAME = frozenset({62, 64})  # of a host, of an address


def connection_error(failure: httpx.HTTPError | ssl.SSLError, url: httpx.URL, *, publishing: bool) -> BraidMQError:
    """Return the error for an exchange that failed without an answer."""
    address = f"{url.scheme}://{url.netloc.decode()}"
    refused = _innermost(failure)
    if isinstance(refused, ssl.SSLError) and refused.reason in _OF_CLIENTS:
        return NoConnection(f"no connection to {address}: {_tls_cause(refused)}")
    if isinstance(failure, httpx.ConnectError | httpx.ConnectTimeout):
        innermost = _innermost(failure)
        if isinstance(innermost, ssl.SSLError):
            return NoConnection(f"no connection to {address}: {_tls_cause(innermost)}")
        return NoConnection(f"no connection to {address}: {_cause(failure)}; is a broker listening there?")
    if isinstance(failure, httpx.PoolTimeout):
        return NoConnection(f"all {MAX_CONNECTIONS} connections of this client are in use; nothing was sent")
    cause = _cause(failure)
    if publishing:
        return OutcomeUnknown(
            f"the answer of {address} to a publish was lost ({cause}): the messages may or may not be stored"
        )
    return ConnectionBroken(f"the answer of {address} was lost: {cause}")


def _innermost(failure: BaseException) -> BaseException:
    """The first failure. TLS also raises an error for each wait: that is no failure, and comes before the real one."""
    deeper = failure.__cause__ or failure.__context__
    while deeper is not None and not isinstance(deeper, ssl.SSLWantReadError | ssl.SSLWantWriteError):
        failure, deeper = deeper, deeper.__cause__ or deeper.__context__
    return failure


def _cause(failure: BaseException) -> str:
    """Return the innermost cause, in the operating system's words if it is one of its errors."""
    innermost = _innermost(failure)
    if isinstance(innermost, ssl.SSLError):
        return _tls_cause(innermost)
    if isinstance(innermost, OSError) and innermost.errno is not None:
        # Name resolution has negative numbers and texts of its own. For other errors, asyncio's texts say less.
        return os.strerror(innermost.errno) if innermost.errno > 0 else str(innermost.strerror)
    if isinstance(failure, httpx.TimeoutException):
        return f"no answer in time ({type(failure).__name__})"
    return str(failure) or type(failure).__name__


def _tls_cause(failure: ssl.SSLError) -> str:
    """Why TLS failed. Its errors are of the class of the operating system's, but have other numbers."""
    if isinstance(failure, ssl.SSLCertVerificationError):
        if failure.verify_code in _WRONG_NAME:
            return f"its certificate is not for this address ({failure.verify_message.rstrip('.')})"
        return (
            f"its certificate is not trusted ({failure.verify_message}); ca, --ca or BRAIDMQ_CA names a file of "
            "certificates to trust"
        )
    if failure.reason in _OF_CLIENTS:
        return f"{_OF_CLIENTS[failure.reason]}; client_cert, --client-cert or BRAIDMQ_CLIENT_CERT names it"
    if failure.reason == "WRONG_VERSION_NUMBER":
        return "what answers there does not speak TLS: try http://"
    if failure.reason == "UNEXPECTED_EOF_WHILE_READING":
        return "the connection ended within TLS: a proxy or port-forward may have lost what it leads to"
    return f"TLS failed ({failure.reason or failure.strerror or failure})"
