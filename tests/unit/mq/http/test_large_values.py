import base64
from typing import Any

import orjson
import pytest

from mq.http.large_values import put_text


@pytest.mark.parametrize("text", ["x", "é", "日", "😀", '\x00\n"\\', "a😀", "日é"])
def test_a_large_text_is_the_string_it_is(text: str) -> None:
    message: dict[str, Any] = {}
    whole = text * 200_003
    put_text(message, "value", memoryview(whole.encode()))
    assert orjson.loads(orjson.dumps(message)) == {"value": whole}


@pytest.mark.parametrize(
    "data",
    [bytes(range(256)) * 2000, b"a" * 100_000 + b"\xff", "é".encode()[:1] * 3, b"a\xf0\x9f"],
    ids=["bytes", "at the end", "no continuation", "cut off"],
)
def test_what_is_no_text_is_base64(data: bytes) -> None:
    message: dict[str, Any] = {}
    put_text(message, "value", memoryview(data))
    assert base64.b64decode(orjson.loads(orjson.dumps(message))["value_base64"]) == data
