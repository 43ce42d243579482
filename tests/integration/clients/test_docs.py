"""Runs docs/client.md: its blocks in order, in one namespace, printing what they say they print."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

from braidmq.testing import InMemoryBroker

PAGE = Path(__file__).parents[3] / "docs" / "client.md"


def test_every_snippet_prints_what_the_page_says() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) > 10
    namespace: dict[str, Any] = {}
    with InMemoryBroker() as broker:
        for block in blocks:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(block.replace("http://127.0.0.1:8080", broker.url), namespace)
            assert printed.getvalue().splitlines() == re.findall(r"^# → (.*)$", block, re.MULTILINE), block
        namespace["client"].close()
