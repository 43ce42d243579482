"""Runs docs/client.md and docs/json-rows.md: blocks in order, in one namespace, print what they say they print."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

from braidmq.testing import InMemoryBroker

DOCS = Path(__file__).parents[3] / "docs"


def blocks_of(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)


def run_blocks(blocks: list[str], url: str) -> dict[str, Any]:
    """Run them in one namespace, which is returned."""
    namespace: dict[str, Any] = {}
    for block in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(block.replace("http://127.0.0.1:8080", url), namespace)
        assert printed.getvalue().splitlines() == re.findall(r"^# → (.*)$", block, re.MULTILINE), block
    return namespace


def test_every_snippet_prints_what_the_page_says() -> None:
    blocks = blocks_of("client.md")
    assert len(blocks) > 10
    with InMemoryBroker() as broker:
        run_blocks(blocks, broker.url)["client"].close()


def test_the_snippet_of_rows_as_json_prints_what_the_page_says() -> None:
    (block,) = blocks_of("json-rows.md")
    run_blocks([block], "")
