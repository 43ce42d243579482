"""Records as JSON, and back."""

import pytest

from filer.errors import CorruptFile
from groups.records import (
    Acked,
    Committed,
    Configured,
    Created,
    Deleted,
    Done,
    Dying,
    Ended,
    Entered,
    Exposed,
    Given,
    Gone,
    Joined,
    Leased,
    Leases,
    Membership,
    Progress,
    Reached,
    Record,
    Redriven,
    Redriving,
    Released,
    Reset,
    Rested,
    Snapshot,
    Taken,
    from_json,
    key_of,
    to_json,
    topic_and_group,
)

RECORDS: list[Record] = [
    Created(at=1, id="01J", settings={"mode": "queue"}, positions=[(0, 5)]),
    Configured(at=2, settings={}),
    Deleted(at=3),
    Taken(at=4),
    Reset(at=4, id="01K", positions=[(0, 7)]),
    Redriving(at=4, topic="t.dead", sequence=3, letters=[Done(0, 1, 2)], passed=[Done(0, 2, 5)]),
    Redriven(at=4),
    Leases(at=5, leases=[Leased(0, 5, 2, -3, [(5, 7), (8, 9)])]),
    Progress(
        at=6,
        reached=[Reached(0, 0, 10)],
        released=[Released(0, 3, 4, 1)],
        acked=[Acked(0, 1, 2, 1)],
        ended=[Ended(0, 2, 3, 1, 99)],
        rested=[Rested(0, 3, 4, 98)],
        exposed=[Exposed(0, 4, 5)],
        dying=[Dying(0, 5, 6, 5, 7, "no such customer: \u00fc")],
        dead=[Done(0, 6, 7)],
        expired=[Done(0, 7, 8)],
        left=[0],
    ),
    Membership(
        at=7,
        joined=[Joined("m", 4)],
        gone=[Gone("m", 3)],
        entered=[Entered(2, 0)],
        skipped=[Done(1, 0, 5)],
        committed=[Committed(1, 2, 7)],
        left=[0],
        given=[Given(2, 1, "m", 4)],
    ),
    Snapshot(at=8, state={"id": "01J"}),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_what_is_written_is_read(record: Record) -> None:
    read = from_json(to_json(record))
    assert to_json(read) == to_json(record)
    if not isinstance(record, Leases):  # JSON has no tuples within tuples
        assert read == record


def test_what_is_empty_is_not_written() -> None:
    assert to_json(Progress(at=1, left=[3])) == b'{"type":"progress","at":1,"left":[3]}'
    assert Progress(at=1).is_empty and not Progress(at=1, left=[3]).is_empty


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b"null",
        b'{"at":1}',
        b'{"type":"later","at":1}',
        b'{"type":"taken"}',
        b'{"type":"taken","at":1,"more":2}',
        b'{"type":"progress","at":1,"acked":[[1,2,3]]}',
        b'{"type":"progress","at":1,"acked":7}',
        b'{"type":["taken"],"at":1}',
    ],
)
def test_what_cannot_be_added_up_is_refused(value: bytes) -> None:
    with pytest.raises(CorruptFile, match="no record of a consumer group"):
        from_json(value)


def test_keys() -> None:
    assert key_of("orders", "billing") == "orders/billing"
    assert topic_and_group("orders/billing") == ("orders", "billing")
