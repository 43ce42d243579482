"""How far an input of `mq publish` has been read and published."""

from collections.abc import Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

from mq.cli.publishing.batches import Batch
from mq.cli.publishing.input_stream import InputStream

if TYPE_CHECKING:
    from mq.cli.publishing.progress_bar import ProgressBar


class Progress:
    """The progress through one input, measured in bytes or in rows. Draws nothing unless `shown`."""

    def __init__(self, name: str, *, shown: bool) -> None:
        self._bar = _bar(name) if shown else None
        self._drawn = ExitStack()
        self._stream: InputStream | None = None
        self._total: int | None = None
        self._rows = self._messages = 0

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._drawn.enter_context(self._bar)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._drawn.close()

    def follow(self, stream: InputStream) -> None:
        """Measure by the bytes read from `stream`."""
        self._stream, self._total = stream, stream.size_bytes
        self._draw()

    def count(self, batches: Iterator[Batch], total_rows: int) -> Iterator[Batch]:
        """Measure by the rows yielded."""
        self._total = total_rows
        self._draw()
        for batch in batches:
            yield batch
            self._rows += batch.table.num_rows

    def update(self, published: int) -> None:
        """Draw the current state, after so many more messages were published."""
        self._messages += published
        self._draw()

    def _draw(self) -> None:
        if self._bar is not None:
            done = self._rows if self._stream is None else self._stream.done_bytes
            self._bar.draw(done, self._total, self._messages)


def _bar(name: str) -> "ProgressBar":
    # Imported here: where no bar is drawn, the command starts sooner.
    from mq.cli.publishing.progress_bar import ProgressBar

    return ProgressBar(name)
