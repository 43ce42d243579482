"""The metrics of a broker, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_PUT_BYTES = (1e3, 1e4, 1e5, 1e6, 4e6, 16e6, 64e6)


class Metrics:
    """The metrics of one broker, in a registry of its own so that several can live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self.messages = Counter("braidmq_messages_stored", "Messages acknowledged.", ["topic"], registry=registry)
        self.files = Counter("braidmq_files_stored", "Segment files put by owners.", ["topic"], registry=registry)
        self.file_bytes = Histogram(
            "braidmq_file_bytes",
            "Size of segment files put by owners.",
            buckets=_PUT_BYTES,
            registry=registry,
        )
        self.messages_read = Counter("braidmq_messages_read", "Messages sent to readers.", ["topic"], registry=registry)
        self.bytes_read = Counter(
            "braidmq_bytes_read", "Bytes of answers with messages for readers.", ["topic"], registry=registry
        )
        self.refused = Counter(
            "braidmq_publishes_refused", "Publishes refused, by the type of the problem.", ["reason"], registry=registry
        )
        self.connections = Gauge("braidmq_connections", "Open connections of clients and brokers.", registry=registry)
        self.connections_refused = Counter(
            "braidmq_connections_refused",
            "Connections refused or ended before their time, by the reason.",
            ["reason"],
            registry=registry,
        )
        self.lost_segments = Counter(
            "braidmq_segments_lost", "Segments that another writer took over.", ["topic"], registry=registry
        )
        self.rollups = Counter("braidmq_rollups", "Roll-ups written.", ["topic"], registry=registry)
        self.deleted = Counter("braidmq_files_deleted", "Superseded or expired files deleted.", registry=registry)
        self.pending_bytes = Gauge(
            "braidmq_front_store_pending_bytes", "Bytes accepted and not stored yet.", registry=registry
        )
        self.recent_bytes = Gauge(
            "braidmq_front_store_recent_bytes", "Bytes of stored messages held in memory.", registry=registry
        )
        self.read_bytes = Gauge(
            "braidmq_read_bytes", "Bytes of answers with messages that are put together or sent.", registry=registry
        )
        self.streams = Gauge("braidmq_streams", "Subscriptions being served.", registry=registry)
        self.leads = Gauge("braidmq_leads", "Whether this broker leads its cluster (0 or 1).", registry=registry)
        self.in_touch = Gauge(
            "braidmq_in_touch",
            "Whether this broker is certain that the cluster counts it as alive (0 or 1).",
            registry=registry,
        )
        self.brokers = Gauge("braidmq_brokers", "Live brokers known to this one.", registry=registry)
        self.segments_owned = Gauge(
            "braidmq_segments_owned", "Open segments that this broker writes.", registry=registry
        )
        self.transitions = Counter(
            "braidmq_transitions",
            "Transitions that this broker has begun and finished.",
            ["topic", "reason"],
            registry=registry,
        )
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
        self.brokers_wanted = Gauge(
            "braidmq_brokers_wanted",
            "How many brokers the traffic calls for, at the leader; 0 at the others.",
            registry=registry,
        )
        self.record_faults = Counter(
            "braidmq_record_faults",
            "Times that a topic's record was found damaged, missing, or older than before.",
            ["topic", "kind"],
            registry=registry,
        )
        self.unusable_records = Gauge(
            "braidmq_unusable_records", "Topics whose record cannot be used at the moment.", registry=registry
        )
        self.repair_failures = Counter(
            "braidmq_topic_repair_failures",
            "Tries to take over or repair a topic that failed and are repeated.",
            ["topic"],
            registry=registry,
        )
        self.snapshots_rebuilt = Counter(
            "braidmq_snapshots_rebuilt",
            "Damaged index snapshots, in whose place the segment's files were read.",
            ["topic"],
            registry=registry,
        )
        self.missing_objects = Gauge(
            "braidmq_missing_objects",
            "Segment files that are known here to be gone (kind: missing) or damaged, and keep messages from readers.",
            ["topic", "kind"],
            registry=registry,
        )
        self.scrubbed_bytes = Counter("braidmq_scrubbed_bytes", "Bytes that the scrub has read.", registry=registry)
        self.scrubbed_objects = Counter(
            "braidmq_scrubbed_objects",
            "Objects that the scrub has checked, by what it found: ok, unchecked, given up, damaged or missing.",
            ["condition"],
            registry=registry,
        )
        self.scrub_findings = Gauge(
            "braidmq_scrub_findings",
            "Objects that the scrub of any broker has found to be damaged or missing, and not sound since.",
            ["topic", "kind"],
            registry=registry,
        )
        self.scrub_oldest_seconds = Gauge(
            "braidmq_scrub_oldest_seconds",
            "For how long the segment that waits longest for this broker's scrub has not been read.",
            registry=registry,
        )
        self.maintenance_errors = Counter(
            "braidmq_maintenance_errors",
            "Rounds of upkeep that failed and will be tried again.",
            registry=registry,
        )

    def render(self) -> bytes:
        """Prometheus' text format."""
        return generate_latest(self.registry)
