"""The chunks of a stream, written to its connection past ASGI: hundreds of streams get the same bytes uncopied."""

import asyncio
from collections.abc import Sequence

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from mq.forms.render import Part


class StreamChunks:
    """The rest of an answer in chunks, once it has begun. Writes to an answer that has ended go nowhere."""

    def __init__(self, transport: asyncio.Transport, cycle: RequestResponseCycle) -> None:
        self._transport, self._cycle = transport, cycle
        self.sent_bytes = 0

    @property
    def takes_more(self) -> bool:
        """Whether the answer goes on, and the client has taken most of it."""
        return self._goes_on and not self._cycle.flow.write_paused

    @property
    def _goes_on(self) -> bool:
        cycle = self._cycle
        return (
            bool(
                cycle.response_started
                and cycle.chunked_encoding
                and not cycle.response_complete
                and not cycle.disconnected
            )
            and not self._transport.is_closing()
        )

    def write(self, pieces: Sequence[Part], size_bytes: int) -> None:
        """Write chunks that have so many bytes of the body. They are kept unchanged until the client takes them."""
        if not self._goes_on:
            return
        self.sent_bytes += size_bytes
        if len(pieces) == 1:
            self._transport.write(pieces[0])
        else:
            self._transport.writelines(pieces)

    async def drained(self) -> None:
        """Return when the client has taken most of it, or is gone."""
        if self._cycle.flow.write_paused and not self._cycle.disconnected:
            await self._cycle.flow.drain()
