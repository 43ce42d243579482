"""The picture of the braid: key range over time, a rectangle for each segment, coloured by its load."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import LogNorm, Normalize
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from braidmq.models import SegmentLife
from filer.slots import SLOTS

Rows = npt.NDArray[np.float64]

COLOURS = "viridis"
SIZE_INCHES, DOTS_PER_INCH = (12.0, 6.75), 150
LOG_FROM_RATIO = 10.0
"""Loads further apart than this are coloured by their orders of magnitude, or the small ones would all look alike."""
LEAST_SPAN_SECONDS = 1.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FONT_POINTS = 7.0
_CHARACTER_POINTS, _LINE_POINTS = 0.66 * _FONT_POINTS, 1.6 * _FONT_POINTS
_UNKNOWN = "0.85"


def draw_braid(topic: str, lives: Sequence[SegmentLife], *, now_us: int) -> Figure:
    """The whole history of a topic up to now."""
    figure = Figure(figsize=SIZE_INCHES, dpi=DOTS_PER_INCH, layout="constrained")
    axes = figure.add_subplot()
    corners = _corners(lives, _EPOCH + timedelta(microseconds=now_us))
    loads = np.array([np.nan if s.messages_per_second is None else s.messages_per_second for s in lives])
    colours = ScalarMappable(norm(loads), _colour_map())
    axes.add_collection(_rectangles(corners, colours.to_rgba(np.ma.masked_invalid(loads))))
    _label_axes(axes, topic, lives, corners)
    _add_bar(figure, axes, colours)
    figure.draw_without_rendering()
    _write_reasons(axes, lives, corners, loads, colours)
    return figure


def norm(loads: Rows) -> Normalize:
    """How loads become colours: from zero on, or by orders of magnitude where they are far apart."""
    known = loads[np.isfinite(loads)]
    largest = float(known.max(initial=0.0))
    least = float(known[known > 0].min(initial=largest))
    if least > 0 and largest / least > LOG_FROM_RATIO:
        return LogNorm(least, largest, clip=True)
    return Normalize(0.0, largest or 1.0, clip=True)


def _colour_map() -> matplotlib.colors.Colormap:
    return matplotlib.colormaps[COLOURS].with_extremes(bad=_UNKNOWN)


def _corners(lives: Sequence[SegmentLife], now: datetime) -> Rows:
    """Left, right (days), bottom, top (slots) of each rectangle."""
    opened = np.array([date2num(s.opened) for s in lives])
    until = np.array([date2num(s.sealed or max(now, s.opened)) for s in lives])
    if np.ptp([*opened, *until]) * 86_400 < LEAST_SPAN_SECONDS:
        until = np.full(len(lives), opened.min() + LEAST_SPAN_SECONDS / 86_400)
    ranges = np.array([s.range for s in lives], dtype=np.float64)
    return np.column_stack((opened, until, ranges))


def _rectangles(corners: Rows, colours: Rows) -> PolyCollection:
    left, right, bottom, top = corners.T
    outlines = np.stack([np.stack(p, axis=1) for p in ((left, bottom), (right, bottom), (right, top), (left, top))], 1)
    width_points = 0.8 if len(corners) <= 50 else 0.35
    return PolyCollection(list(outlines), facecolors=colours, edgecolors="white", linewidths=width_points)


def _add_bar(figure: Figure, axes: Axes, colours: ScalarMappable) -> None:
    ticks = LogLocator(subs=(1, 2, 5)) if isinstance(colours.norm, LogNorm) else None
    bar = figure.colorbar(
        colours,
        ax=axes,
        pad=0.015,
        ticks=ticks,
        format=FuncFormatter(lambda load, _: f"{load:,.10g}"),
        label="messages/s, mean over the segment's life",
    )
    bar.minorticks_off()


def _label_axes(axes: Axes, topic: str, lives: Sequence[SegmentLife], corners: Rows) -> None:
    opened = sum(life.sealed is None for life in lives)
    axes.set_title(f"{topic}: {len(lives)} {_segments(len(lives))}, {opened} open", loc="left", fontsize=11)
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


def _write_reasons(
    axes: Axes, lives: Sequence[SegmentLife], corners: Rows, loads: Rows, colours: ScalarMappable
) -> None:
    """Id and reason in the rectangles that have room for them; only the id where there is room for no more."""
    points_per_pixel = 72 / DOTS_PER_INCH
    starts = axes.transData.transform(corners[:, (0, 2)])
    widths, heights = ((axes.transData.transform(corners[:, (1, 3)]) - starts) * points_per_pixel).T
    for life, (left, _, bottom, top), width, height, load in zip(lives, corners, widths, heights, loads, strict=True):
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
                color="black" if _is_light(colours, load) else "white",
            )


def _is_light(colours: ScalarMappable, load: float) -> bool:
    red, green, blue, _ = colours.to_rgba(np.ma.masked_invalid([load]))[0]
    return bool(0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.45)


def _segments(count: int) -> str:
    return "segment" if count == 1 else "segments"
