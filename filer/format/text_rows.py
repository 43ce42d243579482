"""Which rows of an Arrow body are text, and not JSON text: a topic of JSON stores them as JSON strings.

A client cannot know the type of a topic, and a column has one type for all of its rows. So the schema's metadata has a
bit for each row. Brokers before 0.2.0 ignore it, and take all values as JSON text.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

NAME = b"braidmq.text-rows"


def metadata_of(texts: Sequence[bool] | npt.NDArray[np.bool_]) -> dict[bytes, bytes]:
    """The metadata of a schema with a bit for each of these rows."""
    return {NAME: b64encode(np.packbits(np.asarray(texts, bool)).tobytes())}


def text_rows(metadata: Mapping[bytes, bytes] | None, rows: int) -> npt.NDArray[np.bool_] | None:
    """For each row whether it is text; None without that metadata. Raises `ValueError` if it has other rows."""
    told = (metadata or {}).get(NAME)
    if told is None:
        return None
    bits: npt.NDArray[Any] = np.frombuffer(b64decode(told, validate=True), np.uint8)
    if len(bits) != -(-rows // 8):
        raise ValueError(f"it has {len(bits)} bytes for {rows} rows")
    return np.unpackbits(bits, count=rows).astype(bool)
