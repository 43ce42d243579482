"""The options of the data source, named like those of Spark's Kafka source. Unknown options are refused.

Spark passes them as text, with their names in lower case.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from braidmq.defaults import default_url
from braidmq.names import group_path, topic_path
from braidmq.publish.identity import checked_producer_id
from braidmq.spark.errors import InvalidOption
from braidmq.spark.spans import Span
from filer.errors import BraidError
from filer.nearest import unknown_name
from filer.slots import SLOTS
from filer.times import LATEST_US, microseconds
from filer.topic.positions import Positions, from_marker

CREDENTIALS = ("token", "tokenFile", "ca", "clientCert", "clientKey")
"""The client's identity, and the CAs it trusts. The files have to be where the driver runs, and the executors."""
_COMMON = ("url", "topic", *CREDENTIALS)
_READ = ("subscribe", "startingOffsets", "startingTimestamp", "minPartitions", "failOnDataLoss")
BATCH_READ = (*_COMMON, *_READ, "endingOffsets", "endingTimestamp", "segments", "slots", "ranges")
STREAM_READ = (*_COMMON, *_READ, "maxOffsetsPerTrigger", "group")
BATCH_WRITE = (*_COMMON, "producerId")
# Spark itself adds the location of the checkpoint and the name of the query.
STREAM_WRITE = (*_COMMON, "checkpointLocation", "queryName")
ANY_READ = tuple(dict.fromkeys((*BATCH_READ, *STREAM_READ)))
_HEADER = "header."
_MOST_DIGITS = 18
_BOOLEANS = {"true": True, "false": False}

PositionOption = Literal["earliest", "latest"] | Positions


@dataclass(frozen=True, slots=True)
class Source:
    """A topic of a cluster; `headers` go with every request to its brokers, `credentials` are options by name."""

    url: str
    topic: str
    headers: Mapping[str, str] = field(default_factory=dict)
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """A read's options. Times are in microseconds since 1970, UTC. An end, segments and slots are only for batches.

    If `ranges` are given, they replace start, end and segments. `group` is only for streams: it shows how far they are.
    """

    source: Source
    start: PositionOption = "earliest"
    end: PositionOption = "latest"
    since_us: int | None = None
    until_us: int | None = None
    min_partitions: int = 1
    fail_on_data_loss: bool = True
    most_rows: int | None = None
    segments: tuple[int, ...] | None = None
    slots: tuple[int, int] | None = None
    ranges: tuple[Span, ...] | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Where rows go. `producer_id` identifies the writer, so that a batch may be run again."""

    source: Source
    producer_id: str | None = None


def check_names(options: Mapping[str, str], known: tuple[str, ...], what: str) -> None:
    """Raise `InvalidOption` for the first option that is not allowed for this use."""
    names = {name.lower() for name in known}
    for name in options:
        if name.lower() in names or name.lower().startswith(_HEADER):
            continue
        elsewhere = {each.lower(): each for each in (*ANY_READ, *BATCH_WRITE, *STREAM_WRITE)}
        if name.lower() in elsewhere:
            raise InvalidOption(f"option {elsewhere[name.lower()]!r} is not allowed for {what}")
        raise InvalidOption(unknown_name(f"option of the braidmq source for {what}:", name, known))


def source_of(options: Mapping[str, str], *, subscribe: bool) -> Source:
    """Return the topic to read or write. Raises `InvalidOption` unless it is named exactly once."""
    names = [name for name in (("topic", "subscribe") if subscribe else ("topic",)) if name in options]
    if len(names) != 1:
        raise InvalidOption("name the topic once: option 'topic'" + (", or 'subscribe'" if subscribe else ""))
    topic = options[names[0]]
    topic_path(topic)
    headers = {name[len(_HEADER) :]: value for name, value in options.items() if name.lower().startswith(_HEADER)}
    given = {name: value for name in CREDENTIALS if (value := _text(options, name)) is not None}
    return Source(options.get("url") or default_url(), topic, headers, checked_credentials(given))


def checked_credentials(given: Mapping[str, str]) -> Mapping[str, str]:
    """The same credentials. Raises `InvalidOption` for names that are none, and for those that do not go together."""
    for name in given:
        if name not in CREDENTIALS:
            raise InvalidOption(unknown_name("credential", name, CREDENTIALS))
    if "token" in given and "tokenFile" in given:
        raise InvalidOption("give the option token or tokenFile, not both")
    if "clientKey" in given and "clientCert" not in given:
        raise InvalidOption("clientKey is the key of a certificate: give clientCert too")
    return dict(given)


def batch_read_options(options: Mapping[str, str]) -> ReadOptions:
    """Return the options of a batch read. Raises `InvalidOption`."""
    check_names(options, BATCH_READ, "batch reading")
    source = source_of(options, subscribe=True)
    ranges = _text(options, "ranges")
    return ReadOptions(
        source,
        start=_position(options, "startingOffsets", "earliest", source.topic),
        end=_position(options, "endingOffsets", "latest", source.topic),
        since_us=_time(options, "startingTimestamp"),
        until_us=_time(options, "endingTimestamp"),
        min_partitions=_count(options, "minPartitions") or 1,
        fail_on_data_loss=_boolean(options, "failOnDataLoss", default=True),
        segments=_segments(options),
        slots=_slots(options),
        ranges=None if ranges is None else _ranges(ranges),
    )


def stream_read_options(options: Mapping[str, str]) -> ReadOptions:
    """Return the options of a streaming read. Raises `InvalidOption`."""
    check_names(options, STREAM_READ, "streaming")
    source = source_of(options, subscribe=True)
    since_us = _time(options, "startingTimestamp")
    if since_us is not None and _text(options, "startingOffsets") is not None:
        raise InvalidOption("startingTimestamp or startingOffsets, not both: a stream begins at one position")
    group = _text(options, "group")
    if group is not None:
        group_path(source.topic, group)
    return ReadOptions(
        source,
        start=_position(options, "startingOffsets", "latest", source.topic),
        since_us=since_us,
        min_partitions=_count(options, "minPartitions") or 1,
        fail_on_data_loss=_boolean(options, "failOnDataLoss", default=True),
        most_rows=_count(options, "maxOffsetsPerTrigger"),
        group=group,
    )


def batch_write_options(options: Mapping[str, str]) -> WriteOptions:
    """Return the options of a batch write. Raises `InvalidOption`."""
    check_names(options, BATCH_WRITE, "batch writing")
    producer_id = _text(options, "producerId")
    if producer_id is not None:
        checked_producer_id(producer_id)
    return WriteOptions(source_of(options, subscribe=False), producer_id)


def stream_write_options(options: Mapping[str, str]) -> WriteOptions:
    """Return the options of a streaming write. Raises `InvalidOption`."""
    check_names(options, STREAM_WRITE, "streaming writes")
    return WriteOptions(source_of(options, subscribe=False))


def moment_us(text: str, name: str) -> int:
    """Return the microseconds since 1970 of milliseconds since 1970 (as for Kafka's source) or of RFC 3339.

    Raises `InvalidOption`.
    """
    if text.isascii() and text.isdecimal():
        if len(text) > _MOST_DIGITS or int(text) * 1000 > LATEST_US:
            raise InvalidOption(f"{name} is {text:.80}: it must be within the years 1970 to 9999")
        return int(text) * 1000
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidOption(f"{name} is {text!r:.80}: give milliseconds since 1970, or RFC 3339 with a zone") from None
    if moment.tzinfo is None:
        raise InvalidOption(f"{name} is {text!r}, which has no time zone: add Z, or +01:00 and the like")
    return microseconds(moment)


def _text(options: Mapping[str, str], name: str) -> str | None:
    """The value of an option. Spark's names are in lower case; other mappings may have them as documented."""
    return next((value for key, value in options.items() if key.lower() == name.lower()), None)


def _position(options: Mapping[str, str], name: str, default: PositionOption, topic: str) -> PositionOption:
    text = _text(options, name)
    if text is None:
        return default
    if text in ("earliest", "latest"):
        return "earliest" if text == "earliest" else "latest"
    try:
        return _positions(text, name) if text.lstrip().startswith("{") else from_marker(topic, text)
    except BraidError as error:
        raise InvalidOption(
            f'{name} is earliest, latest, a marker, or an object {{"segment": offset}}: {error}'
        ) from error


def _positions(text: str, name: str) -> Positions:
    try:
        positions = {int(segment): offset for segment, offset in json.loads(text).items()}
    except (ValueError, AttributeError) as error:
        raise InvalidOption(f"{name}: {error}") from error
    return checked_positions(positions, name)


def _ranges(text: str) -> tuple[Span, ...]:
    try:
        given = json.loads(text).items()
        spans = tuple(Span(int(segment), start, stop) for segment, (start, stop) in given)
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidOption(f'ranges is an object such as {{"0": [100, 200]}}: {error}') from error
    if any(not all(map(_is_count, (span.segment, span.start, span.stop))) or span.count < 0 for span in spans):
        raise InvalidOption(f"ranges: offsets are whole numbers, the second not below the first: {text:.80}")
    return spans


def _segments(options: Mapping[str, str]) -> tuple[int, ...] | None:
    text = _text(options, "segments")
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise InvalidOption(f"segments is {text!r:.80}: give their ids, such as 0,3,4")
    return tuple(int(part) for part in parts)


def _slots(options: Mapping[str, str]) -> tuple[int, int] | None:
    text = _text(options, "slots")
    if text is None:
        return None
    parts = [part.strip() for part in text.split("-")]
    if len(parts) != 2 or not all(part.isascii() and part.isdecimal() for part in parts):
        raise InvalidOption(f"slots is {text!r:.80}: give the first, and the one after the last, such as 0-4096")
    return checked_slots((int(parts[0]), int(parts[1])))


def checked_positions(positions: Mapping[int, int], name: str = "a position") -> Positions:
    """Return the offsets by segment if they are valid. Raises `InvalidOption`."""
    for segment, offset in positions.items():
        if not _is_count(offset) or not _is_count(segment):
            raise InvalidOption(f"{name}: {segment!r}: {offset!r} is not a segment with an offset of 0 or more")
    if not positions:
        raise InvalidOption(f"{name} names no segment")
    return dict(positions)


def checked_segments(segments: Iterable[int]) -> tuple[int, ...]:
    """Return the ids if they are valid. Raises `InvalidOption`."""
    found = tuple(segments) if isinstance(segments, Iterable) else ()
    if not isinstance(segments, Iterable) or not all(map(_is_count, found)):
        raise InvalidOption(f"segments is {segments!r:.80}: give their ids, such as [0, 3, 4]")
    return found


def checked_slots(slots: tuple[int, int]) -> tuple[int, int]:
    """Return the range of slots if it is valid. Raises `InvalidOption`."""
    if not isinstance(slots, tuple | list) or len(slots) != 2 or not all(map(_is_count, slots)):
        raise InvalidOption(f"slots is {slots!r:.80}: give the first, and the one after the last, such as (0, 4096)")
    if not 0 <= slots[0] < slots[1] <= SLOTS:
        raise InvalidOption(f"slots {slots[0]}-{slots[1]} is not a range within 0-{SLOTS}")
    return slots


def _time(options: Mapping[str, str], name: str) -> int | None:
    text = _text(options, name)
    return None if text is None else moment_us(text, name)


def _count(options: Mapping[str, str], name: str) -> int | None:
    text = _text(options, name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()) or len(text) > _MOST_DIGITS or int(text) < 1:
        raise InvalidOption(f"{name} is {text!r:.80}: it must be a whole number of 1 or more")
    return int(text)


def _boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = _text(options, name)
    if text is None:
        return default
    if text.lower() not in _BOOLEANS:
        raise InvalidOption(f"{name} is {text!r:.80}: it must be true or false")
    return _BOOLEANS[text.lower()]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
