"""Begins the spans of requests, or goes on with those of other processes."""

from collections.abc import Sequence

from filer.tracing import NO_SPAN, Carrier, Span

MOST_TOGETHER = 32
"""A call between brokers, and a file, serve many requests. They tell of so many traced ones of them."""


class Tracer:
    """This one traces nothing."""

    is_on = False

    def passes_over(self) -> bool:
        """Whether the next request, whose client does not trace, is none that is chosen.

        Asked before anything else is looked at: most requests are passed over, and it must cost them next to nothing.
        """
        return True

    def would_pass_over(self) -> bool:
        """What `passes_over` will return. The next request stays the next one."""
        return True

    def begin(self, step: str, topic: str, carrier: Carrier) -> Span:
        """The span of a client's request. The sampler decides whether it is traced, by what the client gives.

        `carrier` has the client's `traceparent` and `tracestate`, if it gives them.
        """
        return NO_SPAN

    def resume(self, step: str, topic: str, carriers: Sequence[Carrier]) -> Span:
        """The span of another broker's call, in each trace that the other broker says it is for."""
        return NO_SPAN

    async def close(self) -> None:
        """Send what is left, for a limited time."""


NO_TRACER = Tracer()
