"""Options that several commands share."""

from typing import Annotated, Literal

import typer

from braidmq.defaults import LONGEST_DELIVERY_TIMEOUT_SECONDS

DEFAULT_URL = "http://127.0.0.1:8080"

Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="BRAIDMQ_URL",
        metavar="URL",
        help="Address of a broker, or several separated by commas.",
        show_envvar=True,
    ),
]
UrlIfGiven = Annotated[
    str | None,
    typer.Option(
        "--url", envvar="BRAIDMQ_URL", metavar="URL", help="Address of a broker, or several separated by commas."
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        min=0.1,
        max=LONGEST_DELIVERY_TIMEOUT_SECONDS,
        metavar="SECONDS",
        help="How long to go on trying when no broker answers. Default: 30, to publish 120, and to subscribe for ever; "
        "not at all if none has answered yet.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.", show_default=False)]
OfflineStore = Annotated[
    str, typer.Option("--store", envvar="BRAIDMQ_STORE", help="The store: a directory or s3://bucket/prefix.")
]
S3Endpoint = Annotated[
    str | None,
    typer.Option("--s3-endpoint", envvar="BRAIDMQ_S3_ENDPOINT", help="Endpoint of an S3-compatible store."),
]
S3Region = Annotated[str | None, typer.Option("--s3-region", envvar="BRAIDMQ_S3_REGION", help="Region of the bucket.")]
S3Addressing = Annotated[
    Literal["auto", "path", "virtual"],
    typer.Option("--s3-addressing", envvar="BRAIDMQ_S3_ADDRESSING", help="How buckets are addressed."),
]
