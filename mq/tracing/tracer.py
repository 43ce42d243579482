"""Begins the spans of requests, or continues those of other processes."""

from collections.abc import Sequence

from filer.tracing import NO_SPAN, Carrier, Span

MOST_TOGETHER = 32
"""A call between brokers, and a file, serve many requests. They carry so many traced ones of them."""


class Tracer:
    """This one traces nothing."""

    is_on = False

    def passes_over(self) -> bool:
        """Whether the next request, whose client does not trace, is passed over.

        Asked before anything else is looked at: most requests are passed over, and it must cost them next to nothing.
        """
        return True

    def would_pass_over(self) -> bool:
        """Return what `passes_over` will return, without passing to the next request."""
        return True

    def begin(self, step: str, topic: str, carrier: Carrier) -> Span:
        """Begin the span of a client's request. The sampler decides whether it is traced, by the client's headers.

        `carrier` has the client's `traceparent` and `tracestate`, if there are any.
        """
        return NO_SPAN

    def resume(self, step: str, topic: str, carriers: Sequence[Carrier]) -> Span:
        """Begin the span of another broker's call, in each trace that the other broker names."""
        return NO_SPAN

    async def close(self) -> None:
        """Send the remaining spans, for a limited time."""


NO_TRACER = Tracer()
