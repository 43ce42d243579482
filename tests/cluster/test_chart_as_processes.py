"""What the chart installs, run as processes of this machine."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from tests.support.kube.chart import manifests, on_this_machine
from tests.support.kube.pods import Pods
from tests.support.process.processes import end_with_us, until

# Draining, and the pause before it, are those of the manifests.
pytestmark = pytest.mark.timeout(300)
NAME = "queue"
MESSAGES_BEFORE = 50
# A client as in docs/client.md: it publishes numbers, one by one, and prints those that are acknowledged.
PUBLISHING = """
import itertools
from braidmq import Client
with Client() as client:
    client.create_topic("numbers", segments=4, value_type="json")
    for number in itertools.count():
        client.publish("numbers", number, key=str(number % 13))
        print(number, flush=True)
"""
READING = """
import json
from braidmq import Client
with Client() as client:
    print(json.dumps([int(message.value) for message in client.browse("numbers", from_="earliest")]))
"""


def test_it_forms_a_cluster_that_is_replaced_under_load(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    values = tmp_path / "values.yaml"
    own = {"fullnameOverride": NAME, "zookeeper": {"heapMebibytes": 96}}
    values.write_text(yaml.safe_dump({**on_this_machine(tmp_path / "store"), **own}))
    with Pods(manifests(values=values), NAME, tmp_path) as pods:
        test = pods.hook(f"{NAME}-test")
        with ThreadPoolExecutor(1) as beside:
            # It waits for brokers, which are yet to come.
            running = beside.submit(test.run)
            pods.install()
            done = running.result()
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        assert "messages that a group worked on: one three two" in done.stdout
        environment = test.environment()
        acknowledged = tmp_path / "acknowledged"
        with acknowledged.open("w") as out:
            publisher = subprocess.Popen([sys.executable, "-c", PUBLISHING], env=environment, stdout=out)
        end_with_us(publisher.pid)
        until_more(acknowledged, MESSAGES_BEFORE)
        assert pods.roll_out() == [0, 0, 0]
        until_more(acknowledged, MESSAGES_BEFORE)
        assert publisher.poll() is None, "it has seen no error"
        publisher.kill()
        publisher.wait()
        read = subprocess.run([sys.executable, "-c", READING], env=environment, capture_output=True, text=True)
        assert read.returncode == 0, read.stderr
        published = [int(line) for line in acknowledged.read_text().splitlines()]
        # The last one may be stored, and its answer not printed.
        assert sorted(json.loads(read.stdout))[: len(published)] == published


def until_more(lines: Path, count: int) -> None:
    """Until the file has so many lines more than now."""
    before = len(lines.read_text().splitlines())
    until(lambda: len(lines.read_text().splitlines()) >= before + count)
