"""The series of each topic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Literal, get_args

from filer.topic.topic_state import Reason

LOSSES = ("missing", "damaged")
RECORD_FAULTS = ("damaged", "missing", "older")
# Topics are created, and segments opened, without a transition.
TRANSITION_REASONS = tuple(reason for reason in get_args(Reason) if reason != "create")

_next_column = count()


@dataclass(frozen=True, slots=True)
class Family:
    """A metric of topics: one series for each topic and value of `label`, all of which are known beforehand.

    `columns` has the place of each value among all series of a topic. A topic `keeps_place` among those that have
    series once such a gauge was not 0.
    """

    name: str
    type: Literal["counter", "gauge"]
    documentation: str
    label: str = ""
    labels: Sequence[str] = ("",)
    keeps_place: bool = False
    columns: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", {label: next(_next_column) for label in self.labels})


MESSAGES_STORED = Family("braidmq_messages_stored_total", "counter", "Messages acknowledged.")
FILES_STORED = Family("braidmq_files_stored_total", "counter", "Segment files put by owners.")
BYTES_STORED = Family("braidmq_bytes_stored_total", "counter", "Bytes of the segment files put by owners.")
MESSAGES_READ = Family("braidmq_messages_read_total", "counter", "Messages sent to readers.")
BYTES_READ = Family("braidmq_bytes_read_total", "counter", "Bytes of answers with messages for readers.")
SEGMENTS_LOST = Family("braidmq_segments_lost_total", "counter", "Segments that another writer took over.")
ROLLUPS = Family("braidmq_rollups_total", "counter", "Roll-ups written.")
TRANSITIONS = Family(
    "braidmq_transitions_total",
    "counter",
    "Transitions that this broker has begun and finished.",
    "reason",
    TRANSITION_REASONS,
)
FAULTS = Family(
    "braidmq_record_faults_total",
    "counter",
    "Times that a topic's record was found damaged, missing, or older than before.",
    "kind",
    RECORD_FAULTS,
)
REPAIR_FAILURES = Family(
    "braidmq_topic_repair_failures_total",
    "counter",
    "Tries to take over or repair a topic that failed and are repeated.",
)
SNAPSHOTS_REBUILT = Family(
    "braidmq_snapshots_rebuilt_total",
    "counter",
    "Damaged index snapshots, in whose place the segment's files were read.",
)
TOPIC_BYTES = Family(
    "braidmq_topic_bytes",
    "gauge",
    "Bytes of the files on the store of the segments that this broker maintains; over all brokers, of the topic.",
)
OPEN_SEGMENTS = Family(
    "braidmq_open_segments",
    "gauge",
    "Open segments that this broker owns; over all brokers, those of the topic.",
)
MISSING_OBJECTS = Family(
    "braidmq_missing_objects",
    "gauge",
    "Segment files that are known here to be gone (kind: missing) or damaged, and keep messages from readers.",
    "kind",
    LOSSES,
    keeps_place=True,
)
SCRUB_FINDINGS = Family(
    "braidmq_scrub_findings",
    "gauge",
    "Objects that the scrub of any broker has found to be damaged or missing, and not sound since.",
    "kind",
    LOSSES,
    keeps_place=True,
)

FAMILIES = (
    MESSAGES_STORED,
    FILES_STORED,
    BYTES_STORED,
    MESSAGES_READ,
    BYTES_READ,
    SEGMENTS_LOST,
    ROLLUPS,
    TRANSITIONS,
    FAULTS,
    REPAIR_FAILURES,
    SNAPSHOTS_REBUILT,
    TOPIC_BYTES,
    OPEN_SEGMENTS,
    MISSING_OBJECTS,
    SCRUB_FINDINGS,
)
GAUGES = tuple(column for family in FAMILIES if family.type == "gauge" for column in family.columns.values())
SERIES = sum(len(family.columns) for family in FAMILIES)
"""How many series a topic has."""
