"""Opens a bucket, or a part of it, as a store."""

from urllib.parse import urlsplit

from filer.clock import Clock
from filer.errors import InvalidInput, StoreRefused
from filer.stores.object_keys import check_prefix
from filer.stores.s3.s3_settings import S3Settings
from filer.stores.store import Store
from filer.stores.store_address import StoreAddress, is_endpoint


def open_s3(address: StoreAddress, clock: Clock) -> Store:
    """The store at `s3://bucket/prefix`; connects at its first call. Raises `InvalidInput`."""
    bucket, prefix = _bucket_and_prefix(address.url)
    if address.endpoint_url is not None and not is_endpoint(address.endpoint_url):
        raise InvalidInput(
            f"{address.endpoint_url!r} is not the endpoint of an S3 store: write http://host:port or https://host"
        )
    try:
        # Imported here: it takes long, and is missing where only the client is installed.
        from filer.stores.s3.s3_store import S3Store
    except ModuleNotFoundError as error:
        raise InvalidInput(f"s3:// needs {error.name}: pip install 'braidmq[server]'") from error
    settings = S3Settings(
        bucket,
        prefix=prefix,
        endpoint_url=address.endpoint_url,
        region=address.region,
        addressing_style=address.addressing_style,
        resend_seconds=address.resend_seconds,
    )
    return S3Store(settings, clock=clock)


def _bucket_and_prefix(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    if not parts.netloc or "@" in parts.netloc or parts.query or parts.fragment:
        raise InvalidInput(f"{url!r} is not the URL of a bucket: write s3://bucket or s3://bucket/prefix")
    prefix = parts.path.strip("/")
    try:
        check_prefix(prefix)
    except StoreRefused as error:
        raise InvalidInput(f"{url!r}: {error}") from error
    return parts.netloc, prefix
