"""What several dashboards have in common."""

from tools.dashboards.grafana import Variable

TOPIC_VARIABLE = Variable(
    "topic", "Topic", 'braidmq_messages_stored_total{namespace=~"$namespace",job=~"$job"}', "topic"
)
OF_TOPIC = '{S,topic=~"$topic"}'
OF_GROUP = '{S,topic=~"$topic",group=~"$group"}'


def quantiles(metric: str, by: str = "", legend: str = "") -> list[tuple[str, str]]:
    """Queries for the median and the 99th percentile of a histogram."""
    labels = ", ".join(each for each in (by, "le") if each)
    return [
        (
            f"histogram_quantile({quantile}, sum by ({labels}) (rate({metric}_bucket{{S}}[I])))",
            f"{word} {legend}".strip(),
        )
        for quantile, word in ((0.5, "median"), (0.99, "99 %"))
    ]
