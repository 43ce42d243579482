"""Where a store is and how to reach it, as plain data that can be sent to other processes."""

from dataclasses import dataclass
from typing import Literal

AddressingStyle = Literal["auto", "path", "virtual"]
"""Whether S3's buckets are named in the path or in the host name; `auto` does as the endpoint needs."""


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """The URL of a store. What follows the URL is for S3; credentials come from each machine's own environment."""

    url: str
    endpoint_url: str | None = None
    region: str | None = None
    addressing_style: AddressingStyle = "auto"
