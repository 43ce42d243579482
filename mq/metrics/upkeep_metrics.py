"""Metrics of files and records that are written, kept, checked and deleted, over all topics."""

from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from filer.verification.verdict import Condition

_FILE_BYTES = (1e3, 1e4, 1e5, 1e6, 4e6, 16e6, 64e6)


class UpkeepMetrics:
    """A broker's work on files and records, and what hinders it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.file_bytes = Histogram(
            "braidmq_file_bytes",
            "Size of segment files put by owners.",
            buckets=_FILE_BYTES,
            registry=registry,
        )
        self.deleted = Counter("braidmq_files_deleted", "Superseded or expired files deleted.", registry=registry)
        self.store_clock_ahead = Gauge(
            "braidmq_store_clock_ahead_seconds",
            "By how much the store's clock is ahead of this machine's, at least; 0 while they may agree.",
            registry=registry,
        )
        self.deletion_paused = Gauge(
            "braidmq_deletion_paused",
            "Whether this broker deletes nothing, since it cannot rely on the time (0 or 1).",
            registry=registry,
        )
        self.unusable_records = Gauge(
            "braidmq_unusable_records", "Topics whose record cannot be used at the moment.", registry=registry
        )
        self.scrubbed_bytes = Counter("braidmq_scrubbed_bytes", "Bytes that the scrub has read.", registry=registry)
        self.scrubbed_objects = Counter(
            "braidmq_scrubbed_objects",
            "Objects that the scrub has checked, by what it found: ok, unchecked, given up, damaged or missing.",
            ["condition"],
            registry=registry,
        )
        for condition in get_args(Condition):
            self.scrubbed_objects.labels(condition)
        self.scrub_oldest_seconds = Gauge(
            "braidmq_scrub_oldest_seconds",
            "For how long the segment that waits longest for this broker's scrub has not been read.",
            registry=registry,
        )
        self.scrub_period_seconds = Gauge(
            "braidmq_scrub_period_seconds",
            "In which time the scrub is to read everything once; 0 if there is none.",
            registry=registry,
        )
        self.maintenance_errors = Counter(
            "braidmq_maintenance_errors",
            "Rounds of upkeep that failed and will be tried again.",
            registry=registry,
        )
