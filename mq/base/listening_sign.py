"""The line by which `mq serve` says that it takes requests, and at which URL."""

import orjson

SIGN = "listening on "
EVENT = "listening"


def url_told(line: str) -> str | None:
    """The URL in a line that a broker has printed; None if the line tells none. It may be one of JSON."""
    if SIGN in line:
        return line.partition(SIGN)[2].split()[0]
    if line.startswith("{") and f'"{EVENT}"' in line:
        found = orjson.loads(line)
        return str(found["url"]) if found.get("event") == EVENT else None
    return None
