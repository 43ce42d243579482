"""docs/websocket.md: typed in beside a broker, it prints what it says."""

import os
import sys
from pathlib import Path

from tests.support.broker.broker_process import BrokerProcess, broker_environment
from tests.support.tours import ROOT, Typist, steps_of


def test_the_page_prints_what_it_says(tmp_path: Path) -> None:
    steps = steps_of((ROOT / "docs" / "websocket.md").read_text("utf-8"))
    assert len(steps) >= 6
    with BrokerProcess(data=tmp_path / "data") as broker:
        path = f"{Path(sys.prefix, 'bin')}{os.pathsep}{os.environ['PATH']}"
        environment = broker_environment({"PATH": path})
        address = {"localhost:8080": broker.url.removeprefix("http://")}
        folder = tmp_path / "tour"
        folder.mkdir()
        with Typist(folder, environment, address) as typist:
            for step in steps:
                typist.check(step)
