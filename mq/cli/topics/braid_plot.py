"""Draw the history of a topic: key range over time, a rectangle per segment, coloured by its traffic."""

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import LogNorm, Normalize, to_rgba
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator

from braidmq.models import SegmentLife
from filer.slots import SLOTS
from filer.times import moment_of

Rows = npt.NDArray[np.float64]

COLOURS = "viridis"
DOTS_PER_INCH = 150
SIZE_INCHES, LARGE_INCHES, LARGE_FROM_SEGMENTS = (12.0, 6.75), (18.0, 12.0), 60
LOG_FROM_RATIO = 10.0
"""Rates further apart than this get a logarithmic colour scale. Otherwise all small rates would look alike."""
MOST_TICKS_RATIO, MOST_TICKS = 1e5, 20
"""Rates further apart than this get a tick for each power of ten only."""
LEAST_SPAN_SECONDS = 1.0
LEAST_POINTS = 1.0
"""Smaller rectangles are drawn at this size: a segment of one slot may have the highest rate of all."""
OUTLINED_FROM_POINTS, OUTLINE_SHARE, WIDEST_OUTLINE_POINTS = 1.2, 0.1, 0.8
"""Outlines are thinner around small rectangles, and left out if they would hide the rectangle."""
_FONT_POINTS, _LEGEND_POINTS, _TITLE_POINTS = 7.0, 9.0, 11.0
_CHARACTER_POINTS, _LINE_POINTS = 0.66 * _FONT_POINTS, 1.6 * _FONT_POINTS
_LONGEST_NAME = 70
_IDLE, _UNKNOWN = "0.86", "0.6"


def draw_braid(topic: str, lives: Sequence[SegmentLife], *, now_us: int) -> Figure:
    """Draw the whole history of a topic up to `now_us`."""
    size_inches = SIZE_INCHES if len(lives) < LARGE_FROM_SEGMENTS else LARGE_INCHES
    figure = Figure(figsize=size_inches, dpi=DOTS_PER_INCH, layout="constrained")
    axes = figure.add_subplot()
    corners = _corners(lives, moment_of(now_us))
    rates = np.array([np.nan if s.messages_per_second is None else s.messages_per_second for s in lives])
    scale = ScalarMappable(norm(rates), COLOURS)
    _label_axes(axes, topic, lives, corners)
    _add_legend(axes, rates)
    if (rates > 0).any():
        _add_bar(figure, axes, scale, rates)
    # Sizes are known only after the layout.
    figure.draw_without_rendering()
    colours, sizes = _colours(scale, rates), _sizes_points(axes, corners)
    axes.add_collection(_rectangles(corners, sizes, colours, rates))
    _write_reasons(axes, lives, corners, sizes, colours)
    return figure


def norm(rates: Rows) -> Normalize:
    """The colour scale for messages per second: linear from zero, or logarithmic if the rates are far apart."""
    known = rates[np.isfinite(rates)]
    largest = float(known.max(initial=0.0))
    least = float(known[known > 0].min(initial=largest))
    if least > 0 and largest / least > LOG_FROM_RATIO:
        return LogNorm(least, largest, clip=True)
    return Normalize(0.0, largest or 1.0, clip=True)


def _colours(scale: ScalarMappable, rates: Rows) -> Rows:
    colours = np.array(scale.to_rgba(np.ma.masked_invalid(rates)))
    colours[rates == 0] = to_rgba(_IDLE)
    colours[np.isnan(rates)] = to_rgba(_UNKNOWN)
    return colours


def _corners(lives: Sequence[SegmentLife], now: datetime) -> Rows:
    """Left and right (days), bottom and top (slots) of each rectangle: shape (segments, 4)."""
    opened = np.array([date2num(s.opened) for s in lives])
    # The two times may come from the clocks of two brokers.
    until = np.array([date2num(max(s.sealed or now, s.opened)) for s in lives])
    if np.ptp([*opened, *until]) * 86_400 < LEAST_SPAN_SECONDS:
        until = np.full(len(lives), opened.min() + LEAST_SPAN_SECONDS / 86_400)
    ranges = np.array([s.range for s in lives], dtype=np.float64)
    return np.column_stack((opened, until, ranges))


def _sizes_points(axes: Axes, corners: Rows) -> Rows:
    """Width and height of each rectangle in points: shape (segments, 2)."""
    lower, upper = (axes.transData.transform(corners[:, columns]) for columns in ((0, 2), (1, 3)))
    return np.asarray((upper - lower) * 72 / DOTS_PER_INCH)


def _rectangles(corners: Rows, sizes: Rows, colours: Rows, rates: Rows) -> PolyCollection:
    """Large rectangles first, with white outlines; then the tiny ones, the hottest in front."""
    smaller = sizes.min(axis=1)
    is_tiny = smaller < OUTLINED_FROM_POINTS
    order = np.lexsort((np.where(is_tiny, np.nan_to_num(rates), 0.0), is_tiny))
    left, right, bottom, top = corners[order].T
    outlines = np.stack([np.stack(p, axis=1) for p in ((left, bottom), (right, bottom), (right, top), (left, top))], 1)
    widths = np.where(
        is_tiny,
        np.maximum(LEAST_POINTS - smaller, 0.0),
        np.minimum(OUTLINE_SHARE * smaller, WIDEST_OUTLINE_POINTS),
    )
    edges = np.where(is_tiny[:, np.newaxis], colours, to_rgba("white"))
    return PolyCollection(
        list(outlines), facecolors=colours[order], edgecolors=edges[order], linewidths=widths[order], joinstyle="miter"
    )


def _add_legend(axes: Axes, rates: Rows) -> None:
    """Explain the greys, if there are any: they are not on the colour bar."""
    shown = (("no messages", _IDLE, rates == 0), ("rate not known", _UNKNOWN, np.isnan(rates)))
    patches = [Patch(facecolor=colour, label=label) for label, colour, which in shown if which.any()]
    if patches:
        axes.legend(
            handles=patches, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False, fontsize=_LEGEND_POINTS
        )


def _add_bar(figure: Figure, axes: Axes, scale: ScalarMappable, rates: Rows) -> None:
    ticks = None
    if isinstance(scale.norm, LogNorm):
        is_short = rates[rates > 0].max() < MOST_TICKS_RATIO * rates[rates > 0].min()
        ticks = LogLocator(subs=(1, 2, 5) if is_short else (1,), numticks=MOST_TICKS)
    bar = figure.colorbar(
        scale,
        ax=axes,
        pad=0.015,
        ticks=ticks,
        format=FuncFormatter(lambda rate, _: f"{rate:,.10g}"),
        label="messages/s, mean over the segment's life",
    )
    bar.minorticks_off()


def _label_axes(axes: Axes, topic: str, lives: Sequence[SegmentLife], corners: Rows) -> None:
    opened = sum(life.sealed is None for life in lives)
    name = topic if len(topic) <= _LONGEST_NAME else f"{topic[:_LONGEST_NAME]}…"
    title = f"{name}: {len(lives):,} {_segments(len(lives))}, {opened:,} open"
    axes.set_title(title, loc="left", fontsize=_TITLE_POINTS)
    axes.set_xlim(corners[:, 0].min(), corners[:, 1].max())
    axes.set_ylim(0, SLOTS)
    axes.set_yticks(np.linspace(0, SLOTS, 9), [f"{int(slot):,}" for slot in np.linspace(0, SLOTS, 9)])
    axes.set_ylabel("key range, slots")
    locator = AutoDateLocator(tz=UTC)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))
    axes.set_xlabel("time, UTC")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _write_reasons(axes: Axes, lives: Sequence[SegmentLife], corners: Rows, sizes: Rows, colours: Rows) -> None:
    """Write id and reason into each rectangle, only the id if there is no room for both, nothing if there is none."""
    for life, (left, _, bottom, top), (width, height), colour in zip(lives, corners, sizes, colours, strict=True):
        fitting = [
            text
            for text in (f"{life.segment} {life.reason}", str(life.segment))
            if (len(text) + 1.5) * _CHARACTER_POINTS <= width
        ]
        if fitting and height >= _LINE_POINTS:
            axes.annotate(
                fitting[0],
                (left, (bottom + top) / 2),
                xytext=(3, 0),
                textcoords="offset points",
                va="center",
                fontsize=_FONT_POINTS,
                color="black" if _is_light(colour) else "white",
            )


def _is_light(colour: Rows) -> bool:
    red, green, blue, _ = colour
    return bool(0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.45)


def _segments(count: int) -> str:
    return "segment" if count == 1 else "segments"
