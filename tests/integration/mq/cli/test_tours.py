"""The tour of application developers prints what it says, on a directory.

Steps that take long (blocks `console slow`: a cluster, half a million messages) are left out here; `python -m
tests.support.tours` types in everything, and on S3 too.
"""

import sys
from pathlib import Path

import pytest

from tests.support.broker.broker_process import broker_environment
from tests.support.process.processes import free_port
from tests.support.tours import TOURS, Typist, set_up, steps_of

pytestmark = pytest.mark.timeout(240)


def test_the_tour_of_application_developers_prints_what_it_says(tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(sys.prefix, target_is_directory=True)
    port = free_port()
    address = {f"{host}:8080": f"{host}:{port}" for host in ("localhost", "127.0.0.1")}
    environment = broker_environment({"BRAIDMQ_PORT": str(port), "BRAIDMQ_URL": f"http://127.0.0.1:{port}"})
    # A shell may set how wide a table is, and what pytest prints besides.
    environment.pop("COLUMNS", None)
    environment.pop("PYTEST_ADDOPTS", None)
    steps = [each for each in steps_of((TOURS / "application-developer.md").read_text("utf-8")) if each.mark != "slow"]
    assert len(steps) > 50
    with Typist(tmp_path, environment, address) as typist:
        for step in (set_up("directory"), *steps):
            typist.check(step)
    assert (tmp_path / "tour" / "scans.json").exists()
