"""What brokers tell each other of their segments' load, packed: columns of numbers, a topic's name once.

Brokers of two versions understand each other while a cluster is upgraded, whichever of them leads: columns that are
not known are let pass, and one that came later (it has a default in `SegmentLoad`) may be missing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, astuple, dataclass, fields
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from filer.errors import InvalidInput
from leader.cut_points import SlotLoads
from leader.load_averages import KnownAverages, RecentLoad, SegmentLoad

MOST_SEGMENTS = 4096
"""In one report; a broker with more sends several."""
MOST_REPORT_BYTES = 4 * 1024 * 1024
# A report has another `pending_bytes`, the broker's.
_COLUMNS = {field.name.replace("pending", "segment_pending"): field.default for field in fields(SegmentLoad)[2:]}
_LATER_COLUMNS = {name: default for name, default in _COLUMNS.items() if default is not MISSING}
_SLOT_SCHEMA = pa.schema([("messages", pa.float32()), ("bytes", pa.float32())])


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a broker says of segments that it owns; `pending_bytes` is what its front store waits to have stored."""

    broker: str
    pending_bytes: int
    loads: Sequence[SegmentLoad]

    def parts(self) -> list["LoadReport"]:
        """The same in reports of a bounded size; one without segments still says that the broker is there."""
        starts = range(0, max(len(self.loads), 1), MOST_SEGMENTS)
        return [LoadReport(self.broker, self.pending_bytes, self.loads[n : n + MOST_SEGMENTS]) for n in starts]


@dataclass(frozen=True, slots=True)
class ShownLoad:
    """What people are shown of an open segment: how busy it is, and a slot that no split would help against."""

    load: RecentLoad | None
    hot_slot: int | None


def pack_report(report: LoadReport) -> bytes:
    """JSON with a column for each number."""
    names = {name: place for place, name in enumerate(dict.fromkeys(load.topic for load in report.loads))}
    rows = [astuple(load)[1:] for load in report.loads]
    columns = zip(*rows, strict=True) if rows else [()] * (len(_COLUMNS) + 1)
    return orjson.dumps(
        {
            "broker": report.broker,
            "pending_bytes": report.pending_bytes,
            "topics": list(names),
            "topic": [names[load.topic] for load in report.loads],
            **dict(zip(("segment", *_COLUMNS), columns, strict=True)),
        }
    )


def unpack_report(data: bytes) -> LoadReport:
    """The report that was packed; raises `InvalidInput` where the bytes are none."""
    try:
        document: dict[str, Any] = orjson.loads(data)
        names = [str(name) for name in document["topics"]]
        topics = [names[int(place)] for place in document["topic"]]
        segments = [int(segment) for segment in document["segment"]]
        for name in _LATER_COLUMNS.keys() - document.keys():
            document[name] = [_LATER_COLUMNS[name]] * len(topics)
        numbers = np.array([document[name] for name in _COLUMNS], dtype=np.float64).reshape(len(_COLUMNS), len(topics))
        if not np.isfinite(numbers).all():
            raise ValueError("a rate is no number")
        rows: list[list[Any]] = numbers.T.tolist()
        for row in rows:
            row[-1] = int(row[-1])
        named = zip(topics, segments, rows, strict=True)
        loads = [SegmentLoad(topic, segment, *row) for topic, segment, row in named]
        return LoadReport(str(document["broker"]), int(document["pending_bytes"]), loads)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise InvalidInput(f"that is no report of loads: {type(error).__name__}: {error}") from error


def pack_shown(loads: Mapping[int, ShownLoad]) -> bytes:
    """JSON: an object for each segment."""
    return orjson.dumps([{"segment": segment, **asdict(shown)} for segment, shown in loads.items()])


def unpack_shown(data: bytes) -> dict[int, ShownLoad]:
    """The loads that were packed, by segment; raises `InvalidInput` where the bytes are none."""
    try:
        return {int(entry["segment"]): _shown(entry["load"], entry["hot_slot"]) for entry in orjson.loads(data)}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(f"those are no loads: {type(error).__name__}: {error}") from error


def _shown(load: Mapping[str, Any] | None, hot_slot: Any) -> ShownLoad:
    return ShownLoad(None if load is None else _recent(load), None if hot_slot is None else int(hot_slot))


def _recent(load: Mapping[str, Any]) -> RecentLoad:
    """What another version tells besides is let pass, what it does not tell yet is nothing."""
    numbers = {field.name: load.get(field.name, field.default) for field in fields(RecentLoad)}
    pending_bytes = int(numbers.pop("pending_bytes"))
    return RecentLoad(**{name: float(rate) for name, rate in numbers.items()}, pending_bytes=pending_bytes)


def pack_averages(known: KnownAverages) -> bytes:
    """JSON: a row of numbers for each window."""
    rows = [(window, *sums) for window, sums in known.sums.items()]
    return orjson.dumps({"age_seconds": known.age_seconds, "averages": rows})


def unpack_averages(data: bytes) -> KnownAverages:
    """The averages that were packed; raises `InvalidInput` where the bytes are none."""
    try:
        document = orjson.loads(data)
        numbers = np.array([(*map(float, row),) for row in document["averages"]]).reshape(-1, 4)
        age_seconds = float(document["age_seconds"])
        if not (np.isfinite(numbers).all() and (numbers >= 0).all() and age_seconds >= 0 and (numbers[:, 0] > 0).all()):
            raise ValueError("a number is none from 0 on")
        rows = numbers.tolist()
        return KnownAverages(age_seconds, {window: (messages, size, weight) for window, messages, size, weight in rows})
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"those are no averages: {type(error).__name__}: {error}") from error


def pack_slots(loads: SlotLoads | None) -> bytes:
    """The load per slot as a compressed Arrow stream: long runs of slots are alike. No row where it is not known."""
    columns = ([], []) if loads is None else (loads.messages, loads.size_bytes)
    metadata = {"observations": str(0 if loads is None else loads.observations)}
    arrays = [pa.array(column, pa.float32()) for column in columns]
    batch = pa.record_batch(arrays, schema=_SLOT_SCHEMA.with_metadata(metadata))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def unpack_slots(data: bytes) -> SlotLoads | None:
    """The load per slot that was packed; raises `InvalidInput` where the bytes are none."""
    try:
        with pa.ipc.open_stream(data) as reader:
            table = reader.read_all()
        observations = int(table.schema.metadata[b"observations"])
        messages, size_bytes = (each.to_numpy() for each in table.select(_SLOT_SCHEMA.names).cast(_SLOT_SCHEMA))
        if not all((np.isfinite(each) & (each >= 0)).all() for each in (messages, size_bytes)):
            raise ValueError("the load of a slot is a number from 0 on")
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"that is no load per slot: {error}") from error
    return SlotLoads(messages, size_bytes, observations) if len(messages) else None
