"""TLS on a connection with a finished handshake: the layer above reads and writes as on a plain connection.

Event loops have TLS of their own. This one differs in what a client can make it hold. A connection is counted, and can
be ended, from its first byte on. All bytes that wait to be sent are in the plain transport, so its limits and clock
hold as ever. And all connections read to the same piece of memory, where a loop takes 256 KiB for each.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Iterable
from typing import Any

READ_BYTES = 64 * 1024
"""So much is read of a connection before the others have their turn, and so much waits encrypted at most."""
MOST_OWN_BYTES = 16 * 1024
"""Bytes that TLS itself may send while the client takes nothing: the client may ask for new keys at any rate."""


class TlsTransport(asyncio.Transport):
    """The side of a TLS connection that a protocol writes to."""

    def __init__(
        self, plain: asyncio.Transport, tls: ssl.SSLObject, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO
    ) -> None:
        super().__init__({"sslcontext": tls.context, "ssl_object": tls, "peercert": tls.getpeercert()})
        self._plain, self._tls, self._incoming, self._outgoing = plain, tls, incoming, outgoing
        self._protocol: Any = None
        self._ends = self._is_paused = self._is_reading = False
        self._own_bytes = 0

    def begin(self, protocol: asyncio.Protocol, room: memoryview) -> None:
        """Let the protocol use the connection. Bytes that have come already are for it."""
        self._protocol = protocol
        self._plain.set_protocol(_Records(self, room))
        protocol.connection_made(self)
        self.read()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known of the TLS connection, or of the plain one below it."""
        found = super().get_extra_info(name)
        return self._plain.get_extra_info(name, default) if found is None else found

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Let another protocol use the connection. It has to take bytes in its own buffers."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol that uses the connection."""
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt, and write to the plain connection."""
        if self._ends or not data:
            return
        self._encrypt(data)
        self._send()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """The same, of several pieces."""
        if self._ends:
            return
        for data in list_of_data:
            if data:
                self._encrypt(data)
        self._send()

    def _encrypt(self, data: bytes | bytearray | memoryview) -> None:
        size_bytes, written = len(data), self._tls.write(data)
        # A record has 16 KiB at most.
        while written < size_bytes:
            written += self._tls.write(memoryview(data)[written:])

    def _send(self) -> None:
        data = self._outgoing.read()
        if data:
            self._plain.write(data)

    def read(self) -> None:
        """Decrypt the bytes that are there, for as long as the protocol reads."""
        if self._is_reading:
            return
        self._is_reading = True
        try:
            while not (self._is_paused or self._plain.is_closing()) and self._read_some():
                pass
        except ssl.SSLError:
            # Damaged, or forged. Everything written until now is sent, with the alert that says so.
            self._say_own()
            self._ends = True
            self._plain.close()
        finally:
            self._is_reading = False
        self._say_own()

    def _read_some(self) -> bool:
        """Hand on a piece. Returns whether there may be more."""
        room = self._protocol.get_buffer(-1)
        size_bytes, filled, has_ended = len(room), 0, False
        try:
            while filled < size_bytes:
                count: Any = self._tls.read(size_bytes - filled, room[filled:])
                if not count:
                    has_ended = True
                    break
                filled += count
        except ssl.SSLZeroReturnError:
            has_ended = True
        except ssl.SSLWantReadError:
            pass
        if filled:
            self._protocol.buffer_updated(filled)
        if has_ended and not self._plain.is_closing():
            self._protocol.eof_received()
            self.close()
        return filled == size_bytes

    def _say_own(self) -> None:
        """Send TLS's own messages: tickets, new keys, alerts."""
        data = self._outgoing.read()
        if not data or self._plain.is_closing():
            return
        self._own_bytes = len(data) + (self._own_bytes if self._plain.get_write_buffer_size() else 0)
        if self._own_bytes > MOST_OWN_BYTES:
            self.abort()
        else:
            self._plain.write(data)

    def pause_reading(self) -> None:
        """Hand on nothing for now."""
        if not self._is_paused and not self._plain.is_closing():
            self._is_paused = True
            self._plain.pause_reading()

    def resume_reading(self) -> None:
        """Hand on bytes again, also those that are there already."""
        if self._is_paused and not self._plain.is_closing():
            self._is_paused = False
            self._plain.resume_reading()
            if self._incoming.pending or self._tls.pending():
                asyncio.get_running_loop().call_soon(self.read)

    def is_reading(self) -> bool:
        """Whether bytes are handed on."""
        return not self._is_paused

    def can_write_eof(self) -> bool:
        """True: TLS has a message for it."""
        return True

    def write_eof(self) -> None:
        """Tell the client that nothing more comes. Bytes that it still sends are taken, and not even decrypted."""
        self._say_goodbye()
        if self._plain.can_write_eof() and not self._plain.is_closing():
            self._plain.write_eof()

    def _say_goodbye(self) -> None:
        if self._ends:
            return
        self._ends = True
        # Then it has said so, and does not wait for the other side to say the same.
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        self._send()

    def close(self) -> None:
        """Close the connection when all is sent. It does not wait for the other side's answer to that."""
        if not self._plain.is_closing():
            self._say_goodbye()
            self._plain.close()

    def abort(self) -> None:
        """Close the connection at once."""
        self._ends = True
        self._plain.abort()

    def is_closing(self) -> bool:
        """Whether it is closed, or is being closed."""
        return self._plain.is_closing()

    def get_write_buffer_size(self) -> int:
        """Bytes, encrypted, that the client has not taken yet."""
        size: int = self._plain.get_write_buffer_size()
        return size

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return those of the plain connection."""
        return self._plain.get_write_buffer_limits()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set those of the plain connection."""
        self._plain.set_write_buffer_limits(high, low)

    def encrypted(self, data: memoryview) -> None:
        """Take bytes that have come."""
        if self._ends:
            # A protocol that has said goodbye learns that something comes, so that it may take it slowly, and not what.
            self._protocol.get_buffer(-1)
            self._protocol.buffer_updated(0)
            return
        self._incoming.write(data)
        self.read()

    def lost(self, exc: Exception | None) -> None:
        """Note that the plain connection is closed."""
        self._ends = True
        self._protocol.connection_lost(exc)

    def writing_paused(self) -> None:
        """Note that the client does not take what is written."""
        self._protocol.pause_writing()

    def writing_resumed(self) -> None:
        """Note that the client takes it again."""
        self._protocol.resume_writing()

    def eof(self) -> None:
        """The client has closed its side without saying so in TLS. Lengths show whether a request is complete."""
        self._protocol.eof_received()


class _Records(asyncio.BufferedProtocol):
    """The event loop's view of the connection."""

    def __init__(self, transport: TlsTransport, room: memoryview) -> None:
        self._transport, self._room = transport, room[:READ_BYTES]

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        # Copied here, since what is decrypted may go to the same place.
        self._transport.encrypted(self._room[:nbytes])

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport.lost(exc)

    def eof_received(self) -> None:
        self._transport.eof()

    def pause_writing(self) -> None:
        self._transport.writing_paused()

    def resume_writing(self) -> None:
        self._transport.writing_resumed()
