"""Where a store is and how to reach it, as plain data that can be sent to other processes."""

from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

AddressingStyle = Literal["auto", "path", "virtual"]
"""Whether S3's buckets are named in the path or in the host name; `auto` does as the endpoint needs."""


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """The URL of a store. Credentials come from each machine's own environment.

    Endpoint, region, addressing and `resend_seconds` (see `S3Settings`) are for S3. With `tidies_up`, a directory keeps
    no folders of the store's own: for a directory that other programs read, and no broker.
    """

    url: str
    endpoint_url: str | None = None
    region: str | None = None
    addressing_style: AddressingStyle = "auto"
    tidies_up: bool = False
    resend_seconds: float = 3.0


def is_endpoint(url: str) -> bool:
    """Whether that is the URL of a server: `http://host:port` or `https://host`, perhaps with a path."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
