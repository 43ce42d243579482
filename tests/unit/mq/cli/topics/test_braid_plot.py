"""The picture of the braid: what is drawn where, and what is left out where there is no room for it."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from braidmq.models import SegmentLife
from filer.slots import SLOTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BEGIN = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
NOW = BEGIN + timedelta(hours=10)
NOW_US = int(NOW.timestamp() * 1e6)


def draw_braid(*drawn: Any, **how: Any) -> "Figure":
    """As the product does. Only who draws imports matplotlib, and not every worker."""
    from mq.cli.topics import braid_plot

    return braid_plot.draw_braid(*drawn, **how)


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
    from matplotlib.collections import PolyCollection

    axes = draw_braid("t", lives, now_us=NOW_US).axes[0]
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


def test_one_that_was_sealed_before_it_was_opened_by_another_clock_has_no_width() -> None:
    boxes, _ = drawn([life(0, (0, SLOTS), 0, 5.1), life(1, (0, SLOTS), 5.1, 5.0), life(2, (0, SLOTS), 5.0, None)])
    assert sorted(boxes) == [(0, 5.1, 0, SLOTS), (5.0, 10, 0, SLOTS), (5.1, 5.1, 0, SLOTS)]


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
    ("rates", "logarithmic", "bounds"),
    [
        ([0.0, 10.0, 100.0], False, (0.0, 100.0)),
        ([1.0, 100.0, 0.0], True, (1.0, 100.0)),
        ([0.0], False, (0.0, 1.0)),
        ([float("nan")], False, (0.0, 1.0)),
    ],
)
def test_colours_from_rates(rates: list[float], logarithmic: bool, bounds: tuple[float, float]) -> None:
    from matplotlib.colors import LogNorm

    from mq.cli.topics.braid_plot import norm

    scale = norm(np.array(rates))
    assert isinstance(scale, LogNorm) is logarithmic
    assert (scale.vmin, scale.vmax) == bounds


def legend_of(figure: "Figure") -> list[str]:
    legend = figure.axes[0].get_legend()
    return [] if legend is None else [text.get_text() for text in legend.get_texts()]


GREYS = {"no messages": 0.0, "rate not known": None}


@pytest.mark.parametrize(("words", "rate"), GREYS.items(), ids=GREYS)
def test_a_rate_that_is_not_on_the_colour_bar_is_grey_and_in_the_legend(words: str, rate: float | None) -> None:
    figure = draw_braid("t", [life(0, (0, SLOTS), 0, None, messages_per_second=rate)], now_us=NOW_US)
    (axes,) = figure.axes
    red, green, blue, _ = axes.collections[0].get_facecolor()[0]
    assert red == green == blue
    assert legend_of(figure) == [words], "and there is no bar: it would have nothing to show"


def test_the_legend_explains_only_the_greys_that_are_drawn() -> None:
    some = [life(n, (n, n + 1), 0, None, messages_per_second=rate) for n, rate in enumerate((5.0, 0.0, None))]
    figure = draw_braid("t", some, now_us=NOW_US)
    assert legend_of(figure) == list(GREYS)
    assert len(figure.axes) == 2
    assert legend_of(draw_braid("t", some[:1], now_us=NOW_US)) == []


def test_the_hottest_of_what_is_too_small_to_see_is_seen() -> None:
    """A slot of its own, seconds among days: with an outline around it there would be only the outline."""
    lives = [
        life(0, (0, 29_999), 0, None, messages_per_second=5.0),
        life(1, (29_999, 30_000), 0, None, messages_per_second=100.0),
        life(2, (30_000, 30_001), 0, None, messages_per_second=1.0),
        life(3, (30_001, SLOTS), 0, None, messages_per_second=5.0),
    ]
    (rectangles,) = draw_braid("t", lives, now_us=NOW_US).axes[0].collections
    bottoms = [path.vertices[:, 1].min() for path in rectangles.get_paths()]
    assert bottoms == [0, 30_001, 30_000, 29_999], "large ones behind, the hottest in front"
    faces, edges, widths = rectangles.get_facecolor(), rectangles.get_edgecolor(), rectangles.get_linewidth()
    assert (edges[3] == faces[3]).all() and widths[3] > 0.9
    assert (edges[0] == 1).all() and widths[0] == 0.8


def test_outlines_leave_more_of_a_rectangle_than_they_take() -> None:
    """200 open segments beside each other, each of some four points."""
    bounds = [SLOTS * n // 200 for n in range(201)]
    lives = [life(n, (bounds[n], bounds[n + 1]), 0, None) for n in range(200)]
    figure = draw_braid("t", lives, now_us=NOW_US)
    (rectangles,) = figure.axes[0].collections
    height_points = figure.axes[0].get_window_extent().height * 72 / figure.dpi / 200
    assert 0 < max(rectangles.get_linewidth()) < height_points / 4


@pytest.mark.parametrize(("least", "count"), [(1e-3, 10), (100.0, 13)])
def test_the_colour_bar_is_labelled_however_far_apart_loads_are(least: float, count: int) -> None:
    lives = [life(0, (0, 9), 0, None, messages_per_second=least), life(1, (9, SLOTS), 0, None, messages_per_second=1e6)]
    bar = draw_braid("t", lives, now_us=NOW_US).axes[1]
    low, high = bar.get_ylim()
    assert sum(low * 0.999 <= tick <= high * 1.001 for tick in bar.get_yticks()) == count


def test_a_long_name_leaves_room_for_the_counts() -> None:
    title = draw_braid("n" * 200, [life(0, (0, SLOTS), 0, None)], now_us=NOW_US).axes[0].get_title(loc="left")
    assert title.endswith("n…: 1 segment, 1 open") and len(title) < 100
