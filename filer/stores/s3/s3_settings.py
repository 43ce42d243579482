"""Where an S3 bucket is and how to reach it."""

from dataclasses import dataclass

from filer.stores.store_address import AddressingStyle


@dataclass(frozen=True, slots=True)
class S3Settings:
    """One bucket, or the part of it below `prefix`. Credentials come from the usual AWS places.

    If `endpoint_url` or `region` is None, the AWS configuration has it. `addressing_style` says whether the path or the
    host name names the bucket; `auto` does as the endpoint needs. A request without an answer goes out again, on a new
    connection, after `resend_seconds`.
    """

    bucket: str
    prefix: str = ""
    endpoint_url: str | None = None
    region: str | None = None
    addressing_style: AddressingStyle = "auto"
    connect_timeout_seconds: float = 5
    request_timeout_seconds: float = 60
    pool_size: int = 50
    resend_seconds: float = 3

    def __post_init__(self) -> None:
        clean = self.prefix.strip("/")
        object.__setattr__(self, "prefix", f"{clean}/" if clean else "")
