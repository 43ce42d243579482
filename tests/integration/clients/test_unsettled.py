"""Programs that end without closing a producer are told what they leave behind."""

import subprocess
import sys

import pytest

from braidmq.testing import InMemoryBroker
from tests.support.process.processes import child_environment

BLOCKING = """
from braidmq import Client

def main():
    producer = Client({url!r}).producer({topic!r}, linger_seconds=1000)
    for number in range(1000):
        producer.send(str(number))

main()
"""
ASYNCIO = """
import asyncio
from braidmq import AsyncClient

async def main():
    producer = AsyncClient({url!r}).producer({topic!r}, linger_seconds=1000)
    for number in range(1000):
        await producer.send(str(number))

asyncio.run(main())
"""
REFUSED = """
from braidmq import Client

producer = Client({url!r}).producer({topic!r})
receipt = producer.send(b"no JSON")
while not receipt.done():
    pass
"""
CLOSED = """
from braidmq import Client

with Client({url!r}).producer({topic!r}) as producer:
    producer.send("a")
Client({url!r}).producer({topic!r}, linger_seconds=0).send("a").result()
"""


def said_at_the_end(program: str, broker: InMemoryBroker, topic: str) -> str:
    with broker.client() as client:
        client.create_topic(topic, value_type="json")
    ended = subprocess.run(
        [sys.executable, "-c", program.format(url=broker.url, topic=topic)],
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return ended.stderr


@pytest.mark.parametrize(
    ("program", "what"),
    [(BLOCKING, "1,000 messages"), (ASYNCIO, "1,000 messages"), (REFUSED, "1 message")],
    ids=["blocking", "asyncio", "refused"],
)
def test_messages_that_were_never_acknowledged_are_told(
    broker: InMemoryBroker, topic: str, program: str, what: str
) -> None:
    said = said_at_the_end(program, broker, topic)
    assert said.count("\n") == 1
    assert f"a producer of topic {topic!r} has no acknowledgement of {what}:" in said


def test_nothing_is_said_of_what_was_acknowledged(broker: InMemoryBroker, topic: str) -> None:
    assert said_at_the_end(CLOSED, broker, topic) == ""
