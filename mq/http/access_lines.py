"""The lines of the access log. All code that answers requests writes them by this."""

from filer.event_log import EventLog

_log = EventLog(__name__)


def log_answered(
    method: str,
    path: str,
    topic: str | None,
    status: int | None,
    *,
    is_whole: bool,
    received_bytes: int,
    sent_bytes: int,
    duration_seconds: float,
    client: str | None,
) -> None:
    """Write the line of one request. No secret may be in `path`."""
    _log.info(
        "request_answered",
        method=method,
        path=path,
        topic=topic,
        status=status,
        is_whole=is_whole,
        received_bytes=received_bytes,
        sent_bytes=sent_bytes,
        duration_seconds=round(duration_seconds, 6),
        client=client,
    )
