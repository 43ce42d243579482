"""What single brokers do, and what hinders them."""

from tools.dashboards.grafana import Board, Panel, Row, Variable

_BROKER = Variable("instance", "Broker", 'braidmq_ready{namespace=~"$namespace",job=~"$job"}', "instance")
_OF_BROKER = '{S,instance=~"$instance"}'

BROKER = Board(
    "broker",
    "Broker",
    (
        Row(
            "State",
            (
                Panel("Ready", "none", [(f"braidmq_ready{_OF_BROKER}", "{{instance}}")]),
                Panel(
                    "In touch, and leads",
                    "none",
                    [
                        (f"braidmq_in_touch{_OF_BROKER}", "{{instance}} is in touch"),
                        (f"braidmq_leads{_OF_BROKER}", "{{instance}} leads"),
                    ],
                ),
                Panel(
                    "Brokers that it knows",
                    "none",
                    [(f"braidmq_brokers{_OF_BROKER}", "{{instance}}")],
                    "Brokers that differ here are cut off.",
                ),
                Panel("Up for", "s", [(f"time() - process_start_time_seconds{_OF_BROKER}", "{{instance}}")]),
                Panel(
                    "Days until the certificate expires",
                    "none",
                    [
                        (
                            f"(braidmq_certificate_expiry_timestamp_seconds{_OF_BROKER} - time()) / 86400",
                            "{{instance}}, for {{listener}}",
                        )
                    ],
                    "Nothing where brokers have no TLS.",
                ),
                Panel(
                    "Times out of touch",
                    "short",
                    [(f"increase(braidmq_lost_touch_total{_OF_BROKER}[I])", "{{instance}}")],
                ),
            ),
        ),
        Row(
            "Process",
            (
                Panel("Processors", "none", [(f"rate(process_cpu_seconds_total{_OF_BROKER}[I])", "{{instance}}")]),
                Panel(
                    "Memory",
                    "bytes",
                    [
                        (f"process_resident_memory_bytes{_OF_BROKER}", "{{instance}}"),
                        (f"min(braidmq_memory_limit_bytes{_OF_BROKER})", "limit"),
                    ],
                ),
                Panel(
                    "Event loop blocked",
                    "percentunit",
                    [(f"rate(braidmq_event_loop_blocked_seconds_total{_OF_BROKER}[I])", "{{instance}}")],
                    "Share of the time in which nothing could be answered.",
                ),
                Panel(
                    "Open files",
                    "percentunit",
                    [(f"process_open_fds{_OF_BROKER} / process_max_fds{_OF_BROKER}", "{{instance}}")],
                    "Of those that it may have, connections included.",
                ),
                Panel(
                    "Memory of messages",
                    "bytes",
                    [
                        (f"braidmq_front_store_pending_bytes{_OF_BROKER}", "{{instance}}: not stored yet"),
                        (f"braidmq_front_store_recent_bytes{_OF_BROKER}", "{{instance}}: recent"),
                        (f"braidmq_read_bytes{_OF_BROKER}", "{{instance}}: answers"),
                    ],
                ),
                Panel(
                    "Clock of the store is ahead by",
                    "s",
                    [(f"abs(braidmq_store_clock_ahead_seconds{_OF_BROKER})", "{{instance}}")],
                ),
            ),
        ),
        Row(
            "Work",
            (
                Panel("Segments owned", "none", [(f"braidmq_segments_owned{_OF_BROKER}", "{{instance}}")]),
                Panel(
                    "Publishes acknowledged",
                    "reqps",
                    [(f"sum by (instance) (rate(braidmq_publish_seconds_count{_OF_BROKER}[I]))", "{{instance}}")],
                    "By the broker that was asked.",
                ),
                Panel(
                    "Messages stored",
                    "short",
                    [
                        (
                            f"sum by (instance) (rate(braidmq_messages_stored_total{_OF_BROKER}[I]))",
                            "{{instance}} a second",
                        )
                    ],
                    "By the owner of their segment.",
                ),
                Panel(
                    "Connections and streams",
                    "none",
                    [
                        (f"braidmq_connections{_OF_BROKER}", "{{instance}}: connections"),
                        (f"braidmq_streams{_OF_BROKER}", "{{instance}}: streams"),
                    ],
                ),
                Panel(
                    "Connections refused",
                    "short",
                    [
                        (
                            f"sum by (reason) (rate(braidmq_connections_refused_total{_OF_BROKER}[I]))",
                            "{{reason}} a second",
                        )
                    ],
                ),
                Panel(
                    "Upkeep",
                    "short",
                    [
                        (
                            f"sum by (instance) (rate(braidmq_files_deleted_total{_OF_BROKER}[I]) * 60)",
                            "{{instance}}: files deleted a minute",
                        ),
                        (
                            f"sum by (instance) (rate(braidmq_maintenance_errors_total{_OF_BROKER}[I]) * 60)",
                            "{{instance}}: errors a minute",
                        ),
                        (f"braidmq_deletion_paused{_OF_BROKER}", "{{instance}}: deletion paused"),
                    ],
                ),
                Panel(
                    "Security",
                    "short",
                    [
                        (
                            f"increase(braidmq_audit_failures_total{_OF_BROKER}[I])",
                            "{{instance}}: audit records not stored",
                        ),
                        (f"increase(braidmq_policy_failures_total{_OF_BROKER}[I])", "{{instance}}: policy not read"),
                        (f"braidmq_policy_version{_OF_BROKER}", "{{instance}}: version of the policy"),
                    ],
                ),
                Panel(
                    "Bulk loads that fail",
                    "short",
                    [(f"sum by (reason) (increase(braidmq_load_commits_failed_total{_OF_BROKER}[I]))", "{{reason}}")],
                ),
            ),
        ),
    ),
    (_BROKER,),
)
