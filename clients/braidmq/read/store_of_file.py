"""Finds the store of a topic's file, for readers without its signed address: jobs on Spark, DuckDB."""

from urllib.parse import parse_qs, unquote, urlsplit

from braidmq.models import SegmentFile
from filer import keys
from filer.stores.store_address import StoreAddress


def store_of_file(topic: str, file: SegmentFile) -> StoreAddress:
    """The store that holds the file. On S3 the broker's signed address shows the endpoint, the region, and more.

    Credentials are not in it: the reader has its own.
    """
    root, _, rest = file.uri.rpartition(f"/{keys.segments_folder(topic)}")
    if root.startswith("file://"):
        return StoreAddress(unquote(root.removeprefix("file://")))
    if not root.startswith("s3://") or file.url is None:
        return StoreAddress(root)
    signed = urlsplit(file.url)
    bucket, _, prefix = root.removeprefix("s3://").partition("/")
    # AWS4: <access key>/<date>/<region>/s3/aws4_request
    scope = parse_qs(signed.query).get("X-Amz-Credential", [""])[0].split("/")
    region = scope[2] if len(scope) == 5 else None
    if (signed.hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn")):
        # AWS has an endpoint for each region, and the user's own settings may name a special one.
        return StoreAddress(root, region=region)
    key = "/".join(part for part in (prefix, keys.segments_folder(topic) + rest) if part)
    if unquote(signed.path) == f"/{bucket}/{key}":
        return StoreAddress(root, f"{signed.scheme}://{signed.netloc}", region, "path")
    return StoreAddress(root, f"{signed.scheme}://{signed.netloc.removeprefix(f'{bucket}.')}", region, "virtual")
