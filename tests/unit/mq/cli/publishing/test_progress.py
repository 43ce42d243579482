import io

import pyarrow as pa
import pytest

from mq.cli.publishing.batches import Batch
from mq.cli.publishing.input_stream import InputStream
from mq.cli.publishing.progress import Mark, Progress, done_between


class Bar:
    """A bar that notes what it is to draw."""

    def __init__(self) -> None:
        self.drawn: list[tuple[int, int | None, int]] = []

    def draw(self, done: int, total: int | None, messages: int) -> None:
        self.drawn.append((done, total, messages))


def batch(rows: int) -> Batch:
    return Batch(pa.table({"value": ["x"] * rows}), None, "value")


@pytest.mark.parametrize(
    ("passed", "upcoming", "rows", "done"),
    [
        (Mark(0, 0), Mark(10, 1000), 5, 500),
        (Mark(10, 1000), Mark(20, 1200), 20, 1200),
        (Mark(10, 1000), Mark(20, 1200), 10, 1000),
        (Mark(10, 1000), Mark(10, 1000), 10, 1000),
    ],
)
def test_what_is_done_between_two_marks(passed: Mark, upcoming: Mark, rows: int, done: int) -> None:
    assert done_between(passed, upcoming, rows) == done


def test_what_is_read_ahead_does_not_count_until_it_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    bar = Bar()
    monkeypatch.setattr("mq.cli.publishing.progress._bar", lambda _: bar)
    progress = Progress("big.csv", shown=True)
    # Everything is read before the first row is published.
    assert len(list(progress.follow(iter([batch(10), batch(30)]), 400, lambda count: [100, 400][count - 1]))) == 2
    for rows, messages in ((0, 0), (5, 3), (10, 8), (25, 23), (40, 38)):
        progress.advance(rows, messages)
    assert bar.drawn == [(0, 400, 0), (0, 400, 0), (50, 400, 3), (100, 400, 8), (250, 400, 23), (400, 400, 38)]


def test_a_stream_tells_how_much_of_its_source_lies_behind_what_it_gave(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("stream") / "file"
    path.write_bytes(b"x" * 100)
    with io.FileIO(path) as source:
        # Four bytes for each of the source, as of one that is packed.
        stream = InputStream("file", io.BytesIO(b"y" * 400), source)
        source.seek(100)
        stream.read(400)
        assert [stream.done_behind(given) for given in (0, 100, 400, 500)] == [0, 25, 100, 100]
