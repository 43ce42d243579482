"""Options that several commands share."""

from typing import Annotated

import typer

DEFAULT_URL = "http://127.0.0.1:8080"

Url = Annotated[
    str,
    typer.Option(
        "--url", envvar="BRAIDMQ_URL", metavar="URL", help="Address of a broker; several by commas.", show_envvar=True
    ),
]
UrlIfGiven = Annotated[
    str | None,
    typer.Option("--url", envvar="BRAIDMQ_URL", metavar="URL", help="Address of a broker; several by commas."),
]
Json = Annotated[bool, typer.Option("--json", help="JSON for machines instead of a table for people.")]
TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.", show_default=False)]
