"""What becomes of a topic's messages, segments and files."""

from tools.dashboards.boards.parts import OF_TOPIC, TOPIC_VARIABLE
from tools.dashboards.grafana import Board, Panel, Row

TOPIC = Board(
    "topic",
    "Topic",
    (
        Row(
            "Traffic",
            (
                Panel(
                    "Messages stored",
                    "short",
                    [(f"sum by (topic) (rate(braidmq_messages_stored_total{OF_TOPIC}[I]))", "{{topic}} a second")],
                ),
                Panel(
                    "Messages read",
                    "short",
                    [(f"sum by (topic) (rate(braidmq_messages_read_total{OF_TOPIC}[I]))", "{{topic}} a second")],
                ),
                Panel(
                    "How often a message is read",
                    "short",
                    [
                        (
                            f"sum by (topic) (rate(braidmq_messages_read_total{OF_TOPIC}[I])) / "
                            f"(sum by (topic) (rate(braidmq_messages_stored_total{OF_TOPIC}[I])) > 0)",
                            "{{topic}}",
                        )
                    ],
                ),
                Panel(
                    "Bytes stored",
                    "Bps",
                    [(f"sum by (topic) (rate(braidmq_bytes_stored_total{OF_TOPIC}[I]))", "{{topic}}")],
                    "As files: encoded and compressed.",
                ),
                Panel(
                    "Bytes read",
                    "Bps",
                    [(f"sum by (topic) (rate(braidmq_bytes_read_total{OF_TOPIC}[I]))", "{{topic}}")],
                ),
                Panel(
                    "Size",
                    "bytes",
                    [(f"sum by (topic) (braidmq_topic_bytes{OF_TOPIC})", "{{topic}}")],
                    "Of the files on the store.",
                ),
            ),
        ),
        Row(
            "Segments and files",
            (
                Panel("Open segments", "none", [(f"sum by (topic) (braidmq_open_segments{OF_TOPIC})", "{{topic}}")]),
                Panel(
                    "Transitions",
                    "short",
                    [(f"sum by (reason) (rate(braidmq_transitions_total{OF_TOPIC}[I]) * 60)", "{{reason}} a minute")],
                ),
                Panel(
                    "Segments lost",
                    "short",
                    [(f"sum by (topic) (rate(braidmq_segments_lost_total{OF_TOPIC}[I]) * 60)", "{{topic}} a minute")],
                    "Others took them from an owner that was paused or cut off.",
                ),
                Panel(
                    "Mean size of a new file",
                    "bytes",
                    [
                        (
                            f"sum by (topic) (rate(braidmq_bytes_stored_total{OF_TOPIC}[I])) / "
                            f"(sum by (topic) (rate(braidmq_files_stored_total{OF_TOPIC}[I])) > 0)",
                            "{{topic}}",
                        )
                    ],
                    "Many small files cost many puts.",
                ),
                Panel(
                    "Files",
                    "short",
                    [
                        (
                            f"sum by (topic) (rate(braidmq_files_stored_total{OF_TOPIC}[I]) * 60)",
                            "{{topic}}: put a minute",
                        ),
                        (
                            f"sum by (topic) (rate(braidmq_rollups_total{OF_TOPIC}[I]) * 60)",
                            "{{topic}}: rolled up a minute",
                        ),
                    ],
                ),
                Panel(
                    "Damaged or missing objects",
                    "none",
                    [
                        (
                            f"max by (topic, kind) (braidmq_missing_objects{OF_TOPIC})",
                            "{{topic}}: {{kind}}, seen by readers",
                        ),
                        (
                            f"max by (topic, kind) (braidmq_scrub_findings{OF_TOPIC})",
                            "{{topic}}: {{kind}}, by the scrub",
                        ),
                        (
                            f"sum by (topic) (rate(braidmq_record_faults_total{OF_TOPIC}[I]) * 60)",
                            "{{topic}}: record, a minute",
                        ),
                        (
                            f"sum by (topic) (rate(braidmq_topic_repair_failures_total{OF_TOPIC}[I]) * 60)",
                            "{{topic}}: repairs that failed, a minute",
                        ),
                        (
                            f"sum by (topic) (rate(braidmq_snapshots_rebuilt_total{OF_TOPIC}[I]) * 60)",
                            "{{topic}}: index snapshots, a minute",
                        ),
                    ],
                ),
            ),
        ),
        Row(
            "Groups of the topic",
            (
                Panel(
                    "Lag",
                    "short",
                    [(f"max by (topic, group) (braidmq_group_lag_messages{OF_TOPIC})", "{{topic}} / {{group}}")],
                ),
                Panel(
                    "Oldest message",
                    "s",
                    [(f"max by (topic, group) (braidmq_group_lag_seconds{OF_TOPIC})", "{{topic}} / {{group}}")],
                ),
            ),
        ),
    ),
    (TOPIC_VARIABLE,),
)
