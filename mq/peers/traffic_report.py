"""The wire form of traffic reports between brokers: columns of numbers, with the name of each topic once.

Brokers of two versions understand each other during an upgrade, whichever of them leads: unknown columns are ignored,
and a column that was added later (it has a default in `SegmentTraffic`) may be missing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, astuple, dataclass, fields
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from filer.errors import InvalidInput
from leader.policy.cut_points import SlotTraffic
from leader.traffic.traffic_averages import KnownAverages, RecentTraffic, SegmentTraffic

MOST_SEGMENTS = 4096
"""The segments of one report; a broker with more segments sends several reports."""
MOST_REPORT_BYTES = 4 * 1024 * 1024
# The report's own `pending_bytes` are those of the broker.
_COLUMNS = {field.name.replace("pending", "segment_pending"): field.default for field in fields(SegmentTraffic)[2:]}
_LATER_COLUMNS = {name: default for name, default in _COLUMNS.items() if default is not MISSING}
_SLOT_SCHEMA = pa.schema([("messages", pa.float32()), ("bytes", pa.float32())])


@dataclass(frozen=True, slots=True)
class TrafficReport:
    """The traffic of segments that a broker owns. `pending_bytes` of its front store wait to be stored."""

    broker: str
    pending_bytes: int
    segments: Sequence[SegmentTraffic]

    def batches(self) -> list["TrafficReport"]:
        """Return the same as reports of bounded size. A report without segments still says that the broker lives."""
        starts = range(0, max(len(self.segments), 1), MOST_SEGMENTS)
        return [TrafficReport(self.broker, self.pending_bytes, self.segments[n : n + MOST_SEGMENTS]) for n in starts]


@dataclass(frozen=True, slots=True)
class ShownTraffic:
    """What people see of an open segment: its recent traffic, and a slot so hot that no split would help."""

    recent: RecentTraffic | None
    hot_slot: int | None


def pack_report(report: TrafficReport) -> bytes:
    """Return JSON with a column for each number."""
    names = {name: index for index, name in enumerate(dict.fromkeys(each.topic for each in report.segments))}
    rows = [astuple(each)[1:] for each in report.segments]
    columns = zip(*rows, strict=True) if rows else [()] * (len(_COLUMNS) + 1)
    return orjson.dumps(
        {
            "broker": report.broker,
            "pending_bytes": report.pending_bytes,
            "topics": list(names),
            "topic": [names[each.topic] for each in report.segments],
            **dict(zip(("segment", *_COLUMNS), columns, strict=True)),
        }
    )


def unpack_report(data: bytes) -> TrafficReport:
    """Parse a packed report. Raises `InvalidInput` for anything else."""
    try:
        document: dict[str, Any] = orjson.loads(data)
        names = [str(name) for name in document["topics"]]
        topics = [names[int(index)] for index in document["topic"]]
        segment_ids = [int(segment) for segment in document["segment"]]
        for name in _LATER_COLUMNS.keys() - document.keys():
            document[name] = [_LATER_COLUMNS[name]] * len(topics)
        numbers = np.array([document[name] for name in _COLUMNS], dtype=np.float64).reshape(len(_COLUMNS), len(topics))
        if not np.isfinite(numbers).all():
            raise ValueError("a rate is not a finite number")
        rows: list[list[Any]] = numbers.T.tolist()
        for row in rows:
            row[-1] = int(row[-1])
        named = zip(topics, segment_ids, rows, strict=True)
        segments = [SegmentTraffic(topic, segment_id, *row) for topic, segment_id, row in named]
        return TrafficReport(str(document["broker"]), int(document["pending_bytes"]), segments)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise InvalidInput(f"not a traffic report: {type(error).__name__}: {error}") from error


def pack_shown(shown: Mapping[int, ShownTraffic], *, field: str = "traffic") -> bytes:
    """Return JSON: an object for each segment, with its recent traffic under the name `field`."""
    return orjson.dumps(
        [
            {"segment": segment, field: each.recent and asdict(each.recent), "hot_slot": each.hot_slot}
            for segment, each in shown.items()
        ]
    )


def unpack_shown(data: bytes, *, field: str = "traffic") -> dict[int, ShownTraffic]:
    """Parse packed traffic, by segment. Raises `InvalidInput` for anything else."""
    try:
        return {int(entry["segment"]): _shown(entry[field], entry["hot_slot"]) for entry in orjson.loads(data)}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(f"not the traffic of segments: {type(error).__name__}: {error}") from error


def _shown(recent: Mapping[str, Any] | None, hot_slot: Any) -> ShownTraffic:
    return ShownTraffic(None if recent is None else _recent(recent), None if hot_slot is None else int(hot_slot))


def _recent(document: Mapping[str, Any]) -> RecentTraffic:
    """Parse recent traffic. Ignores unknown numbers of other versions; missing ones get their defaults."""
    numbers = {field.name: document.get(field.name, field.default) for field in fields(RecentTraffic)}
    pending_bytes = int(numbers.pop("pending_bytes"))
    return RecentTraffic(**{name: float(rate) for name, rate in numbers.items()}, pending_bytes=pending_bytes)


def pack_averages(known: KnownAverages) -> bytes:
    """Return JSON: a row of numbers for each window."""
    rows = [(window, *sums) for window, sums in known.sums.items()]
    return orjson.dumps({"age_seconds": known.age_seconds, "averages": rows})


def unpack_averages(data: bytes) -> KnownAverages:
    """Parse packed averages. Raises `InvalidInput` for anything else."""
    try:
        document = orjson.loads(data)
        numbers = np.array([(*map(float, row),) for row in document["averages"]]).reshape(-1, 4)
        age_seconds = float(document["age_seconds"])
        if not (np.isfinite(numbers).all() and (numbers >= 0).all() and age_seconds >= 0 and (numbers[:, 0] > 0).all()):
            raise ValueError("a number is not finite, or below 0")
        rows = numbers.tolist()
        return KnownAverages(age_seconds, {window: (messages, size, weight) for window, messages, size, weight in rows})
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"not the averages of a segment: {type(error).__name__}: {error}") from error


def pack_slots(traffic: SlotTraffic | None) -> bytes:
    """Return the traffic per slot as a compressed Arrow stream: long runs of slots are alike. None has no rows."""
    columns = ([], []) if traffic is None else (traffic.messages, traffic.size_bytes)
    metadata = {"observations": str(0 if traffic is None else traffic.observations)}
    arrays = [pa.array(column, pa.float32()) for column in columns]
    batch = pa.record_batch(arrays, schema=_SLOT_SCHEMA.with_metadata(metadata))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def unpack_slots(data: bytes) -> SlotTraffic | None:
    """Parse packed traffic per slot. Raises `InvalidInput` for anything else."""
    try:
        with pa.ipc.open_stream(data) as reader:
            table = reader.read_all()
        observations = int(table.schema.metadata[b"observations"])
        messages, size_bytes = (each.to_numpy() for each in table.select(_SLOT_SCHEMA.names).cast(_SLOT_SCHEMA))
        if not all((np.isfinite(each) & (each >= 0)).all() for each in (messages, size_bytes)):
            raise ValueError("the traffic of a slot is a finite number from 0 on")
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"not the traffic per slot: {error}") from error
    return SlotTraffic(messages, size_bytes, observations) if len(messages) else None
