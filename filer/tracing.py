"""Spans: the steps of a request, as the code that works for it reports them, if the request is traced.

    with tracing.current().child("read") as span:
        ...
        span.note(messages=12)

Nothing here knows a tracing library: `mq.tracing` has spans that go to a collector. Without tracing, `current()` is
`NO_SPAN`, and its steps are `NO_SPAN` again, so that callers need no check.
"""

from asyncio import Future
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Literal, Self

from filer.within import Within

Kind = Literal["internal", "client", "server"]
Fact = str | int | float | bool
Carrier = Mapping[str, str]
"""The headers by which another process goes on with a trace: `traceparent` and maybe `tracestate`."""


class Span:
    """A step of a request. This class is the step of a request that is not traced, and does nothing.

    As a context it is the `current()` span inside, and ends with the block, with the error that the block raises.
    """

    __slots__ = ()

    is_recording = False

    @property
    def trace_id(self) -> str | None:
        """The id of its trace, 32 hexadecimal digits, while it lasts; None if it is not traced."""
        return None

    def child(self, step: str, *, kind: Kind = "internal") -> "Span":
        """A step within this one. A step that has ended has none within it: tasks may outlive their request."""
        return self

    def follow(self, step: str, *, kind: Kind = "internal", links: "Sequence[Span]" = ()) -> "Span":
        """The step after this one, which may have ended. `links` are steps of other requests that it serves as well."""
        return self

    def note(self, **facts: Fact) -> None:
        """Add facts about it; `mq.tracing.attributes` lists them."""

    def event(self, name: str, error: BaseException | None = None) -> None:
        """Something that happened during it."""

    def link(self, other: "Span") -> None:
        """Point to a step of another request."""

    def fail(self, kind: str, detail: str = "") -> None:
        """Note that it failed. `kind` is one of a few words."""

    def end(self, error: BaseException | None = None) -> None:
        """End it now. Only the first call counts."""

    def end_with(self, outcome: "Future[Any]") -> None:
        """End it when the future is done, with the future's error if it has one."""

    def each(self) -> "Sequence[Span]":
        """The spans that it consists of: one of each trace to which it belongs."""
        return ()

    def carriers(self) -> Sequence[Carrier]:
        """For each trace to which it belongs, the headers with which another process continues it, while it lasts."""
        return ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None


NO_SPAN = Span()
_current: ContextVar[Span] = ContextVar("span", default=NO_SPAN)
current = _current.get
"""The step that the running task is in."""


def within(span: Span) -> Within[Span]:
    """Everything inside belongs to this span and to no other, even if it is `NO_SPAN`. The span does not end."""
    return Within(_current, span)


class EnteredSpan(Span):
    """A span that is the `current()` one within its context."""

    __slots__ = ("_within",)

    def __enter__(self) -> Self:
        self._within = within(self)
        self._within.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._within.__exit__()
        self.end(error)


class LeftOut(EnteredSpan):
    """A step that a trace has no room for: steps within it do not become steps of the one around it.

    Each step has an object of its own: if one object were entered again, within itself or by another task, it could not
    be left.
    """

    __slots__ = ()

    def child(self, step: str, *, kind: Kind = "internal") -> Span:
        """As `Span.child`."""
        return LeftOut()

    def follow(self, step: str, *, kind: Kind = "internal", links: Sequence[Span] = ()) -> Span:
        """As `Span.follow`."""
        return LeftOut()


class _Together(EnteredSpan):
    """Steps of several requests that are one: a part of a call that carries the messages of all of them."""

    __slots__ = ("_spans",)

    is_recording = True

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans

    @property
    def trace_id(self) -> str | None:
        return self._spans[0].trace_id

    def child(self, step: str, *, kind: Kind = "internal") -> Span:
        return together(span.child(step, kind=kind) for span in self._spans)

    def follow(self, step: str, *, kind: Kind = "internal", links: Sequence[Span] = ()) -> Span:
        return together(span.follow(step, kind=kind, links=links) for span in self._spans)

    def note(self, **facts: Fact) -> None:
        for span in self._spans:
            span.note(**facts)

    def event(self, name: str, error: BaseException | None = None) -> None:
        for span in self._spans:
            span.event(name, error)

    def link(self, other: Span) -> None:
        for span in self._spans:
            span.link(other)

    def fail(self, kind: str, detail: str = "") -> None:
        for span in self._spans:
            span.fail(kind, detail)

    def end(self, error: BaseException | None = None) -> None:
        for span in self._spans:
            span.end(error)

    def end_with(self, outcome: "Future[Any]") -> None:
        for span in self._spans:
            span.end_with(outcome)

    def each(self) -> Sequence[Span]:
        return self._spans

    def carriers(self) -> Sequence[Carrier]:
        return [carrier for span in self._spans for carrier in span.carriers()]


def together(spans: Iterable[Span]) -> Span:
    """One step of several requests, from a step of each; `NO_SPAN` if none of them is traced."""
    traced = [each for span in spans for each in span.each()]
    if len(traced) > 1:
        return _Together(traced)
    return traced[0] if traced else NO_SPAN
