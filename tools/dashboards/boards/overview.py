"""Whether all is well, and what is going on."""

from tools.dashboards.boards.parts import quantiles
from tools.dashboards.grafana import Board, Panel, Row

OVERVIEW = Board(
    "overview",
    "Overview",
    (
        Row(
            "Health",
            (
                Panel("Brokers ready", "none", [("sum(braidmq_ready{S})", "ready")], kind="stat"),
                Panel(
                    "Brokers wanted",
                    "none",
                    [("max(braidmq_brokers_wanted{S})", "wanted")],
                    "How many the traffic calls for, as the leader sees it.",
                    "stat",
                ),
                Panel("Leaders", "none", [("sum(braidmq_leads{S})", "leaders")], "1, but for a moment.", "stat"),
                Panel(
                    "Out of touch",
                    "none",
                    [("count(braidmq_in_touch{S} == 0) or vector(0)", "brokers")],
                    "Brokers without a certain session at ZooKeeper.",
                    "stat",
                ),
                Panel(
                    "Alerts",
                    "none",
                    [('count(ALERTS{alertname=~"BraidMQ.+",alertstate="firing"}) or vector(0)', "firing")],
                    kind="stat",
                ),
                Panel("Topics' bytes", "bytes", [("sum(braidmq_topic_bytes{S})", "on the store")], kind="stat"),
                Panel(
                    "Versions",
                    "none",
                    [("count by (version) (braidmq_build_info{S})", "{{version}}")],
                    "How far a rolling upgrade is.",
                ),
                Panel(
                    "Damaged or missing objects",
                    "none",
                    [
                        (
                            "sum by (kind) (max by (topic, kind) (braidmq_missing_objects{S}))",
                            "{{kind}}, seen by readers",
                        ),
                        (
                            "sum by (kind) (max by (topic, kind) (braidmq_scrub_findings{S}))",
                            "{{kind}}, found by the scrub",
                        ),
                        ("max(braidmq_unusable_records{S})", "records of topics"),
                    ],
                ),
                Panel("Open segments", "none", [("sum by (instance) (braidmq_segments_owned{S})", "{{instance}}")]),
            ),
        ),
        Row(
            "Traffic",
            (
                Panel(
                    "Messages",
                    "short",
                    [
                        ("sum(rate(braidmq_messages_stored_total{S}[I]))", "stored a second"),
                        ("sum(rate(braidmq_messages_read_total{S}[I]))", "read a second"),
                    ],
                ),
                Panel(
                    "Bytes",
                    "Bps",
                    [
                        ("sum(rate(braidmq_bytes_stored_total{S}[I]))", "stored, as files"),
                        ("sum(rate(braidmq_bytes_read_total{S}[I]))", "given to readers"),
                    ],
                ),
                Panel(
                    "Publishes acknowledged",
                    "reqps",
                    [("sum by (acks) (rate(braidmq_publish_seconds_count{S}[I]))", "acks={{acks}}")],
                ),
                Panel(
                    "Publishes refused",
                    "reqps",
                    [("sum by (reason) (rate(braidmq_publishes_refused_total{S}[I])) > 0", "{{reason}}")],
                    "By the type of the problem in the answer.",
                ),
                Panel(
                    "Publishes that fail, of all",
                    "percentunit",
                    [("namespace_job:braidmq_publishes_failed:ratio_rate5m{S}", "{{job}}")],
                    "Without those that are the client's fault.",
                ),
                Panel(
                    "Lag of groups",
                    "short",
                    [("sum(namespace_job_topic_group:braidmq_group_lag_messages:max{S})", "messages")],
                ),
            ),
        ),
        Row(
            "How long it takes",
            (
                Panel("Publishes", "s", quantiles("braidmq_publish_seconds", "acks", "acks={{acks}}")),
                Panel("Reads", "s", quantiles("braidmq_read_seconds"), "To find the messages of a page."),
                Panel("Forwarding", "s", quantiles("braidmq_forward_seconds"), "Calls to the owner of a segment."),
            ),
        ),
        Row(
            "What hinders",
            (
                Panel(
                    "Front store",
                    "percentunit",
                    [("braidmq_front_store_pending_bytes{S} / braidmq_front_store_limit_bytes{S}", "{{instance}}")],
                    "Accepted and not stored yet, of what may be.",
                ),
                Panel(
                    "Calls of the store that stall",
                    "none",
                    [("sum by (instance) (braidmq_store_stalled{S})", "{{instance}}")],
                ),
                Panel(
                    "Transitions",
                    "short",
                    [("sum by (reason) (rate(braidmq_transitions_total{S}[I]) * 60)", "{{reason}} a minute")],
                    "Segments that were sealed and got successors.",
                ),
            ),
        ),
    ),
)
