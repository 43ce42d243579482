"""A dead letter as a row of its topic, and as the row that is published again to the topic it came from."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa

from filer.format.headers import DELIVER_AT, EXPIRES_AT
from filer.format.schema import TOPIC_FIELD, MessageSchema
from filer.uploads import Reference
from mq.base.errors import InvalidReference

PREFIX = "braid-dead-"
REASON, TOPIC, MEMBER, GROUP, GROUP_ID, ORIGIN, DELIVERIES, PAYLOAD = (
    f"{PREFIX}{name}" for name in ("reason", "topic", "member", "group", "group-id", "origin", "deliveries", "payload")
)
REDRIVEN_GROUP = "braid-redriven-group"
"""On a redriven message: it shows other groups of the topic that they may have seen the message before."""
_Headers = list[tuple[str, bytes]]


def dead_letter(row: pa.Table, schema: MessageSchema, about: Mapping[str, str]) -> pa.RecordBatch:
    """Return the one message of `row` as a dead letter, with headers for the reason, and for its member if it has one.

    A payload by reference lies with the topic of the message. So its letter has no value, but names the reference.
    """
    headers = [pair for pair in _headers_of(row, 0) if not pair[0].startswith(PREFIX)]
    headers += [(name, text.encode()) for name, text in about.items()]
    if TOPIC_FIELD.name in row.column_names:
        headers.append((MEMBER, row[TOPIC_FIELD.name][0].as_py().encode()))
    if (reference := row["_ref"][0].as_py()) is not None:
        headers.append((PAYLOAD, orjson.dumps(reference)))
    return _rows(row, schema, [headers], [None])


def redriven(
    rows: pa.Table, schema: MessageSchema, group: str, references: Sequence[Reference | None]
) -> pa.RecordBatch:
    """Return dead letters as they are published again: unchanged, but without a delay or an expiry of their own."""
    headers = [
        [
            *(
                pair
                for pair in _headers_of(rows, index)
                if not (pair[0].startswith(PREFIX) or pair[0].lower() in _LEFT_OUT)
            ),
            (REDRIVEN_GROUP, group.encode()),
        ]
        for index in range(rows.num_rows)
    ]
    return _rows(rows, schema, headers, [None if each is None else each.to_row() for each in references])


def payload_of(headers: Iterable[tuple[str, bytes]] | None) -> Reference | None:
    """Return the payload of a dead letter's message, by its headers. Any publisher may have forged them.

    Raises `InvalidReference`.
    """
    told = dict(headers or ()).get(PAYLOAD)
    if told is None:
        return None
    try:
        given = orjson.loads(told)
        return Reference(str(given["uri"]), int(given["size"]), str(given["etag"]), given["sha256"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise InvalidReference(f"its header {PAYLOAD} is no reference: {error}") from error


def member_of(headers: Iterable[tuple[str, bytes]] | None) -> str | None:
    """Return the topic of the topic group that a dead letter names; None if it names none. It may have been forged."""
    told = dict(headers or ()).get(MEMBER)
    return None if told is None else told.decode(errors="replace")


def deliveries_of(headers: Iterable[tuple[str, bytes]] | None) -> int:
    """Return how often a dead letter's message was delivered; 0 if its headers have no number."""
    told = dict(headers or ()).get(DELIVERIES, b"")
    return int(told) if told.isdigit() and len(told) < 10 else 0


_LEFT_OUT = frozenset((DELIVER_AT, EXPIRES_AT, REDRIVEN_GROUP))


def _headers_of(rows: pa.Table, index: int) -> _Headers:
    return list(rows["headers"][index].as_py() or ())


def _rows(
    rows: pa.Table, schema: MessageSchema, headers: list[_Headers], references: list[dict[str, Any] | None]
) -> pa.RecordBatch:
    made: dict[str, list[Any]] = {"headers": headers, "_ref": references}
    columns = [
        pa.array(made[field.name], field.type)
        if field.name in made
        else rows[field.name].combine_chunks().cast(field.type)
        for field in schema.published
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema.published)
