"""Large values as JSON, without more copies of them than the text itself.

A string of Python takes up to four times the bytes of its UTF-8, and orjson reserves eight times them to write it.
"""

import base64
import codecs
import io
from typing import Any

import orjson

LARGE_BYTES = 256 * 1024
_STEP_BYTES = 64 * 1024


def put_text(message: dict[str, Any], name: str, data: memoryview) -> None:
    """As a string if it is UTF-8, else as base64 under `<name>_base64`."""
    text = _escaped(data)
    if text is None:
        name, text = f"{name}_base64", b'"%b"' % base64.b64encode(data)
    message[name] = orjson.Fragment(text)


def _escaped(data: memoryview) -> bytes | None:
    """The JSON string of UTF-8; None if it is something else."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    written = io.BytesIO()
    written.write(b'"')
    try:
        for start in range(0, len(data), _STEP_BYTES):
            step = decoder.decode(data[start : start + _STEP_BYTES])
            written.write(orjson.dumps(step)[1:-1])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return None
    written.write(b'"')
    return written.getvalue()
