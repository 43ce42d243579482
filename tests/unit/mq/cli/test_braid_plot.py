"""The picture of the braid: what is drawn where, and what is left out where there is no room for it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import LogNorm

from braidmq.models import SegmentLife
from filer.slots import SLOTS
from mq.cli.braid_plot import draw_braid, norm

BEGIN = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
NOW = BEGIN + timedelta(hours=10)
NOW_US = int(NOW.timestamp() * 1e6)


def life(number: int, bounds: tuple[int, int], opened: float, sealed: float | None, **more: Any) -> SegmentLife:
    """A segment from one hour to another."""
    return SegmentLife(
        segment=number,
        range=bounds,
        state="open" if sealed is None else "sealed",
        reason=more.pop("reason", "split"),
        opened=BEGIN + timedelta(hours=opened),
        sealed=None if sealed is None else BEGIN + timedelta(hours=sealed),
        messages=0,
        **{"messages_per_second": 10.0, **more},
    )


def drawn(lives: list[SegmentLife]) -> tuple[list[tuple[float, float, float, float]], list[str]]:
    """Each rectangle (hours and slots), and what is written."""
    (axes, _) = draw_braid("t", lives, now_us=NOW_US).axes
    (rectangles,) = (each for each in axes.collections if isinstance(each, PolyCollection))
    begin_days = BEGIN.timestamp() / 86_400
    boxes = []
    for path in rectangles.get_paths():
        (left, bottom), (right, top) = path.vertices.min(axis=0), path.vertices.max(axis=0)
        boxes.append((round((left - begin_days) * 24, 4), round((right - begin_days) * 24, 4), bottom, top))
    return boxes, [text.get_text() for text in axes.texts]


def test_one_segment() -> None:
    boxes, written = drawn([life(0, (0, SLOTS), 0, None, reason="create")])
    assert boxes == [(0, 10, 0, SLOTS)]
    assert written == ["0 create"]


def test_one_that_has_just_been_opened() -> None:
    boxes, _ = drawn([life(0, (0, SLOTS), 10, None)])
    assert boxes[0][1] > boxes[0][0]


def test_a_split_and_a_merge() -> None:
    boxes, written = drawn(
        [
            life(0, (0, SLOTS), 0, 4, reason="create"),
            life(1, (0, 1000), 4, 8),
            life(2, (1000, SLOTS), 4, 8),
            life(3, (0, SLOTS), 8, None, reason="merge"),
        ]
    )
    assert boxes == [(0, 4, 0, SLOTS), (4, 8, 0, 1000), (4, 8, 1000, SLOTS), (8, 10, 0, SLOTS)]
    assert written == ["0 create", "2 split", "3 merge"], "1000 slots are too low to write in"


def test_where_there_is_room_for_the_id_only() -> None:
    _, written = drawn([life(123, (0, SLOTS), 0, 0.6), life(124, (0, SLOTS), 0.6, None)])
    assert written == ["123", "124 split"]


@pytest.mark.parametrize(
    ("loads", "logarithmic", "bounds"),
    [
        ([0.0, 10.0, 100.0], False, (0.0, 100.0)),
        ([1.0, 100.0, 0.0], True, (1.0, 100.0)),
        ([0.0], False, (0.0, 1.0)),
        ([float("nan")], False, (0.0, 1.0)),
    ],
)
def test_colours_from_loads(loads: list[float], logarithmic: bool, bounds: tuple[float, float]) -> None:
    scale = norm(np.array(loads))
    assert isinstance(scale, LogNorm) is logarithmic
    assert (scale.vmin, scale.vmax) == bounds


def test_a_load_that_is_not_known_is_grey() -> None:
    (axes, _) = draw_braid("t", [life(0, (0, SLOTS), 0, None, messages_per_second=None)], now_us=NOW_US).axes
    red, green, blue, _ = axes.collections[0].get_facecolor()[0]
    assert red == green == blue
