"""The line in which `mq serve` says that it takes requests, and at which URL."""

import orjson

SIGN = "listening on "
EVENT = "listening"


def url_told(line: str) -> str | None:
    """Return the URL in a line that a broker has printed; None if it has none. It may be a line of JSON."""
    if SIGN in line:
        return line.partition(SIGN)[2].split()[0]
    if line.startswith("{") and f'"{EVENT}"' in line:
        found = orjson.loads(line)
        return str(found["url"]) if found.get("event") == EVENT else None
    return None
