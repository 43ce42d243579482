"""docs/consuming.md: typed in with curl, with the command line and with Python, it prints what it says."""

import os
import sys
from pathlib import Path

import pytest

from braidmq.testing import InMemoryBroker
from tests.support.broker.broker_process import broker_environment
from tests.support.tours import ROOT, Typist, steps_of


@pytest.mark.timeout(300)  # it types in thirty commands, most of which are programs that start
def test_the_page_prints_what_it_says(tmp_path: Path) -> None:
    steps = steps_of((ROOT / "docs" / "consuming.md").read_text("utf-8"))
    assert len(steps) > 20
    with InMemoryBroker() as broker:
        path = f"{Path(sys.prefix, 'bin')}{os.pathsep}{os.environ['PATH']}"
        environment = broker_environment({"BRAIDMQ_URL": broker.url, "PATH": path})
        environment.pop("COLUMNS", None)
        address = {"localhost:8080": broker.url.removeprefix("http://")}
        with Typist(tmp_path, environment, address) as typist:
            for step in steps:
                if step.mark == "varies":
                    typist.do(step)
                else:
                    typist.check(step)
