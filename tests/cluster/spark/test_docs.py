"""Runs docs/spark.md: its blocks in order, in one namespace, printing what they say they print."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.broker.broker_process import BrokerProcess

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(400)]

PAGE = Path(__file__).parents[3] / "docs" / "spark.md"


def test_every_snippet_prints_what_the_page_says(spark: SparkSession, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) > 5
    namespace: dict[str, Any] = {}
    with BrokerProcess(data=tmp_path) as broker, contextlib.ExitStack() as stack:
        stack.callback(lambda: namespace["client"].close())
        for block in blocks:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(block.replace("http://127.0.0.1:8080", broker.url), namespace)
            assert printed.getvalue().splitlines() == re.findall(r"^# → (.*)$", block, re.MULTILINE), block
