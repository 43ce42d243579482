"""The beginning of a connection with TLS, before any bytes of HTTP are there."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, cast

from uvicorn.protocols.utils import get_remote_addr

from filer.event_log import EventLog
from mq.process.connections.refusals import NOT_TLS, TLS_FAILED, Refusal
from mq.process.connections.tls_transport import TlsTransport
from mq.process.connections.watch import ConnectionWatch
from mq.tls.peer_certificate import peer_certificate

# How every connection with TLS begins: a record of the kind "handshake".
_HANDSHAKE = 22
# A certificate chain of a client may be large. This is many times as much.
_MOST_BYTES = 128 * 1024

_log = EventLog(__name__)


_MEANINGS = {
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the CA of this broker's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client does not take this broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client does not take this broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "to the client, this broker's certificate has expired",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has shown no certificate",
    "UNSUPPORTED_PROTOCOL": "the client speaks no TLS 1.2 or later",
    "NO_SHARED_CIPHER": "the client knows no cipher that this broker takes",
}


class TlsDoor:
    """Makes the protocols of connections that begin with a handshake, and knows which are not done with it."""

    def __init__(
        self, context: ssl.SSLContext, watch: ConnectionWatch, served: "Callable[..., asyncio.Protocol]"
    ) -> None:
        self.context, self.watch, self.served = context, watch, served
        self.under_way: set[TlsHandshake] = set()

    def __call__(self, **named: Any) -> asyncio.BaseProtocol:
        """Make the protocol of a connection, as uvicorn does."""
        return TlsHandshake(self, named)

    def close(self) -> None:
        """End the handshakes under way. Nothing is lost with them."""
        for each in list(self.under_way):
            each.abort()


class TlsHandshake(asyncio.BufferedProtocol):
    """A connection until its handshake is done. Then the HTTP protocol, made only now, goes on with it.

    It counts, and has its time, like a connection that sends the head of a request.
    """

    may_send = True

    def __init__(self, door: TlsDoor, named: dict[str, Any]) -> None:
        self._door, self._named = door, named
        self._watch, self._room = door.watch, door.watch.scratch
        self.received_bytes = 0
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._plain: Any = None
        self._address = ""
        self._ended = False

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the client has not taken yet."""
        size: int = self._plain.get_write_buffer_size()
        return size

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection, or end it."""
        self._plain = cast("asyncio.Transport", transport)
        self._address = (get_remote_addr(self._plain) or ("",))[0]
        self._door.under_way.add(self)
        self._watch.carry_out(self._watch.connections.admit(self, self._address))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go."""
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        """Take so many bytes."""
        if self._ended:
            if not self._plain.is_closing():
                self._watch.unwanted.came(self)
            return
        self.received_bytes += nbytes
        if self._tls is None:
            if self._room[0] != _HANDSHAKE:
                self._refuse(NOT_TLS)
                return
            self._tls = self._door.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._incoming.write(self._room[:nbytes])
        self._go_on(self._tls)

    def _go_on(self, tls: ssl.SSLObject) -> None:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            self._say()
            if self.received_bytes > _MOST_BYTES:
                self._failed("it goes on and on")
            else:
                self._watch.carry_out(self._watch.connections.head_part(self, self.received_bytes))
        except (ssl.SSLError, ssl.CertificateError) as error:
            self._say()  # the alert, which has the reason for the client
            self._failed(error)
        else:
            self._say()
            shown = peer_certificate(tls.getpeercert())
            if shown is not None and self._watch.left_seconds(shown.until_seconds) <= 0:
                # A resumed session was verified when it began, which may be long ago.
                self._failed("the client's certificate has expired")
            else:
                self._done(tls)

    def _say(self) -> None:
        data = self._outgoing.read()
        if data:
            self._plain.write(data)

    def _done(self, tls: ssl.SSLObject) -> None:
        """Hand over to the HTTP protocol, which counts the connection from here on."""
        self._gone()
        transport = TlsTransport(self._plain, tls, self._incoming, self._outgoing)
        transport.begin(self._door.served(**self._named), self._room)

    def _failed(self, error: object) -> None:
        _log.warning("tls_handshake_failed", client=self._address, error=_words(error))
        self._refuse(TLS_FAILED)

    def _refuse(self, refusal: Refusal) -> None:
        self._watch.end(self, refusal)

    def end(self, refusal: Refusal) -> None:
        """End the connection. A client without TLS gets the reason in plain HTTP, others only TLS's own messages."""
        if self._ended or refusal not in (NOT_TLS, TLS_FAILED):
            self.abort()
            return
        self._ended = True
        self._gone()
        if self._plain.is_closing():
            return
        if self._speaks_http():
            self._plain.write(refusal.answer(self._watch.new_request_id()))
        self._plain.write_eof()
        # If closed at once, the client's machine might drop what it has not read yet.
        self._watch.connections.linger(self)

    def _speaks_http(self) -> bool:
        """Whether the bytes begin like a request. To any other client an answer of HTTP means nothing."""
        return self._tls is None and bytes(self._room[:1]).isalpha()

    def abort(self) -> None:
        """Close the connection."""
        self._ended = True
        self._gone()
        self._plain.abort()

    def pause(self) -> None:
        """Read nothing for now."""
        self._plain.pause_reading()

    def read_on(self) -> None:
        """Read again, unless the connection is being closed."""
        if not self._plain.is_closing():
            self._plain.resume_reading()

    def eof_received(self) -> None:
        """Note that the client sends no more."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it. A client that goes away is not logged: checks of whether the port is open do the same."""
        self._ended = True
        self._watch.unwanted.gone(self)
        self._gone()

    def _gone(self) -> None:
        self._door.under_way.discard(self)
        self._watch.connections.gone(self)


def _words(error: object) -> object:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return _MEANINGS.get(error.reason, error.reason.replace("_", " ").lower())
    return error
