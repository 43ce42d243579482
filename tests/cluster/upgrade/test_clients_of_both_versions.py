"""Clients of this version at a broker of the version before, and the other way round.

Text in a topic of JSON, producers, claims, acks, releases and workers: what a client may rely on while a cluster is
upgraded.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker.broker_process import BrokerProcess, broker_environment
from tests.support.process.previous_version import (
    BEFORE_EXPOSING,
    PREVIOUS_ENVIRONMENT,
    previous_python,
    previous_version,
)

pytestmark = pytest.mark.timeout(120)

CLIENT = """
import json, sys
from braidmq import Client, OutgoingMessage

MESSAGES = 12
told = {}
with Client(sys.argv[1]) as client:
    client.create_topic("work", value_type="json", segments=2)
    client.publish("work", {"n": 1}, key="k")
    client.publish("work", b'"bytes"', key="k")
    client.publish_many("work", [OutgoingMessage(json.dumps(f"many {n}").encode(), key=f"k{n}") for n in range(5)])
    with client.producer("work") as producer:
        for n in range(5):
            producer.send(json.dumps(f"sent {n}").encode(), key=f"k{n}")
    client.create_topic("texts", value_type="json")
    client.publish("texts", "1")
    client.publish_many("texts", ["2", "3"])
    with client.producer("texts") as producer:
        producer.send("4")
    told["texts"] = [m.value.decode() for m in client.browse("texts")]
    client.group("work", "g").create(order=sys.argv[2])
    handled = []

    def handle(delivery):
        value = delivery.value.decode()
        handled.append(value)
        if handled.count('"sent 0"') == 1 and value == '"sent 0"':
            raise ValueError("not this time")
        if len(handled) == MESSAGES + 1:
            worker.stop()

    worker = client.worker("work", group="g", idle_seconds=20.0)
    worker.run(handle, concurrency=3)
    told["acked"] = worker.acked
    told["handled"] = sorted(handled)
    client.publish("work", b"0")
    worker = client.worker("work", group="g", idle_seconds=20.0)
    taken = []
    for delivery in worker:
        taken.append(delivery.value.decode())
        if len(taken) == 1:
            delivery.release()
        else:
            delivery.ack()
            break
    worker.close()
    told["taken"] = taken
    described = client.group("work", "g").describe()
    told["lag"] = described.lag.messages
    told["in flight"] = described.in_flight
    told["values"] = sorted(m.value.decode() for m in client.browse("work"))
print(json.dumps(told))
"""


def broker(folder: Path, *, is_old: bool) -> BrokerProcess:
    if not is_old:
        return BrokerProcess(data=folder)
    python, source = previous_python(BEFORE_EXPOSING), previous_version(BEFORE_EXPOSING)
    return BrokerProcess(data=folder, env=PREVIOUS_ENVIRONMENT, forked=False, python=python, folder=source)


def said_by_client(url: str, order: str, *, is_old: bool) -> Any:
    done = subprocess.run(
        [previous_python(BEFORE_EXPOSING) if is_old else sys.executable, "-c", CLIENT, url, order],
        env=broker_environment(PREVIOUS_ENVIRONMENT if is_old else {}),
        cwd=previous_version(BEFORE_EXPOSING) if is_old else None,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("order", ["none", "key"])
@pytest.mark.parametrize("is_old_client", [True, False], ids=["old client", "new client"])
def test_a_client_works_at_a_broker_of_the_other_version(tmp_path: Path, order: str, is_old_client: bool) -> None:
    with broker(tmp_path, is_old=not is_old_client) as running:
        told = said_by_client(running.url, order, is_old=is_old_client)
    values = sorted(['{"n":1}', '"bytes"', *(f'"{how} {n}"' for how in ("many", "sent") for n in range(5))])
    assert told.pop("values") == sorted([*values, "0"])
    assert told.pop("handled") == sorted([*values, '"sent 0"'])
    # The version before takes text for JSON, so it is no JSON string before both are upgraded: docs/operations.md.
    assert told == {"texts": ["1", "2", "3", "4"], "acked": 12, "taken": ["0", "0"], "lag": 0, "in flight": 0}
