"""What is asked of the store, and what that costs."""

from tools.dashboards.boards.parts import quantiles
from tools.dashboards.grafana import Board, Panel, Row, Variable

# As Amazon S3 has them in most regions.
_PRICES = (
    Variable("put_price", "Price of 1,000 puts and lists", given="0.005"),
    Variable("get_price", "Price of 1,000 reads", given="0.0004"),
    Variable("storage_price", "Price of a GB for a month", given="0.023"),
)
_MONTH_SECONDS = 2_629_800
_MOVING = "create|replace|get"
_PUTS, _GETS = "create|replace|list|list_folders", "get|head|tell_time"

STORE = Board(
    "store",
    "Store and what it costs",
    (
        Row(
            "Cost, by the prices above",
            (
                Panel(
                    "Requests, a month at this rate",
                    "currencyUSD",
                    [
                        (
                            f'sum(rate(braidmq_store_calls_total{{S,operation=~"{_PUTS}"}}[I])) '
                            f"* {_MONTH_SECONDS} / 1000 * $put_price",
                            "puts and lists",
                        ),
                        (
                            f'sum(rate(braidmq_store_calls_total{{S,operation=~"{_GETS}"}}[I])) '
                            f"* {_MONTH_SECONDS} / 1000 * $get_price",
                            "reads",
                        ),
                    ],
                ),
                Panel(
                    "Storage, a month at this size",
                    "currencyUSD",
                    [("sum by (topic) (braidmq_topic_bytes{S}) / 1e9 * $storage_price", "{{topic}}")],
                    "Segment files, without payloads and what is to be deleted.",
                ),
                Panel(
                    "Puts for a million messages",
                    "short",
                    [
                        (
                            'sum(rate(braidmq_store_calls_total{S,operation=~"create|replace"}[I])) '
                            "/ (sum(rate(braidmq_messages_stored_total{S}[I])) > 0) * 1e6",
                            "puts",
                        )
                    ],
                    "Larger batches and fewer segments make it less.",
                ),
                Panel(
                    "Size of files put",
                    "bytes",
                    quantiles("braidmq_file_bytes"),
                    "By their buckets: 1 kB, 10 kB, 100 kB, 1, 4, 16 and 64 MB.",
                ),
                Panel(
                    "Storage of quotas",
                    "percentunit",
                    [("max by (topics) (braidmq_storage_quota_used_ratio{S})", "{{topics}}")],
                    "Nothing where the policy limits nobody's storage.",
                ),
                Panel(
                    "Read by the scrub",
                    "Bps",
                    [("sum(rate(braidmq_scrubbed_bytes_total{S}[I]))", "read")],
                    "Reads like any others, that are paid for.",
                ),
            ),
        ),
        Row(
            "Requests",
            (
                Panel(
                    "Requests",
                    "reqps",
                    [("sum by (operation) (rate(braidmq_store_calls_total{S}[I]))", "{{operation}}")],
                ),
                Panel(
                    "Bytes",
                    "Bps",
                    [
                        (
                            f'sum by (operation) (rate(braidmq_store_bytes_total{{S,operation=~"{_MOVING}"}}[I]))',
                            "{{operation}}",
                        )
                    ],
                ),
                Panel("How long they take", "s", quantiles("braidmq_store_call_seconds", "operation", "{{operation}}")),
                Panel(
                    "Answers that are no success",
                    "reqps",
                    [('sum by (outcome) (rate(braidmq_store_calls_total{S,outcome!="ok"}[I]))', "{{outcome}}")],
                    "exists, etag_mismatch and not_found are how brokers agree: small numbers are normal.",
                ),
                Panel(
                    "Errors by cause",
                    "reqps",
                    [("sum by (cause) (rate(braidmq_store_errors_total{S}[I]))", "{{cause}}")],
                    "503 asks to slow down.",
                ),
                Panel(
                    "Mean time of a put",
                    "s",
                    [
                        (
                            'sum by (instance) (rate(braidmq_store_seconds_total{S,operation="create"}[I])) '
                            '/ (sum by (instance) (rate(braidmq_store_calls_total{S,operation="create"}[I])) > 0)',
                            "{{instance}}",
                        )
                    ],
                ),
            ),
        ),
        Row(
            "The scrub",
            (
                Panel(
                    "Waits longest, in periods of the scrub",
                    "none",
                    [("max(braidmq_scrub_oldest_seconds{S} / (braidmq_scrub_period_seconds{S} > 0))", "periods")],
                    "Above 1 it does not keep up.",
                ),
                Panel(
                    "Objects checked",
                    "short",
                    [("sum by (condition) (rate(braidmq_scrubbed_objects_total{S}[I]))", "{{condition}} a second")],
                ),
            ),
        ),
    ),
    _PRICES,
)
