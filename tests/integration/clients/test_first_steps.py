"""What a program sees first: where a client finds its broker, what it prints, and how it fails."""

import subprocess
import sys
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from braidmq import AsyncClient, Client, InvalidArgument, NoConnection
from braidmq.testing import InMemoryBroker
from tests.support.process.processes import free_port


def test_a_client_finds_its_broker_by_the_variable_as_mq_does(
    broker: InMemoryBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRAIDMQ_URL", f"{broker.url},http://127.0.0.1:9")
    with Client() as client:
        assert client.create_topic(topic).created
        assert client.url == broker.url
    monkeypatch.setenv("BRAIDMQ_URL", "")
    with Client() as client:
        assert client.url == "http://127.0.0.1:8080"


def test_a_refused_connection_is_one_line_under_a_short_traceback() -> None:
    program = f'from braidmq import Client\nClient("http://127.0.0.1:{free_port()}").publish("t", b"x")\n'
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    lines = ended.stderr.splitlines()
    assert ended.returncode == 1 and len(lines) < 15
    assert sum("Traceback" in line for line in lines) == 1
    assert lines[-1].startswith("braidmq.errors.NoConnection: no connection to http://127.0.0.1:")


async def test_an_error_of_asyncio_says_where_it_was_called() -> None:
    async with AsyncClient(f"http://127.0.0.1:{free_port()}") as client:
        with pytest.raises(NoConnection) as failure:
            await client.publish("t", b"x")
    assert "test_an_error_of_asyncio" in "".join(traceback.format_tb(failure.value.__traceback__))


WRONG: list[tuple[Callable[[Any, str], Any], str]] = [
    (lambda client, topic: client.publish_many(topic, "abc"), "takes a list of values or messages, and not a str"),
    (lambda client, topic: client.publish_many(topic, b"abc"), "and not a bytes"),
    (lambda client, topic: client.publish_many(topic, {"a": 1}), "and not a dict"),
    (lambda client, topic: client.publish_many(topic, 5), "and not an int"),
    (lambda client, topic: client.publish(topic, "\ud800"), "text is sent as UTF-8, and this is none: .*; give bytes"),
    (lambda client, topic: client.publish(topic, b"", key="\ud800"), "text is sent as UTF-8, and this is none"),
    (lambda client, topic: client.publish(topic, b"", headers=[("a", "b")]), "headers are a dictionary .* not a list"),
    (lambda client, topic: client.publish(topic, b"", event_time="2026-01-01"), "'2026-01-01' is no time: give a date"),
    (lambda client, topic: client.publish(None, b""), "None cannot name a topic: a name is text"),
    (
        lambda client, topic: client.publish_table(topic, pd.DataFrame({"a": [1, "x"]})),
        "for column a .*: Could not conv",
    ),
]


@pytest.mark.parametrize(("call", "message"), WRONG, ids=map(str, range(len(WRONG))))
async def test_what_types_forbid_is_told_in_a_line(
    call: Callable[[Any, str], Any], message: str, broker: InMemoryBroker, topic: str
) -> None:
    with Client(broker.url) as client:
        client.create_topic(topic)
        with pytest.raises(InvalidArgument, match=message):
            call(client, topic)
        assert not list(client.browse(topic))
    async with AsyncClient(broker.url) as asynchronous:
        with pytest.raises(InvalidArgument, match=message):
            await call(asynchronous, topic)


@pytest.mark.parametrize("url", [8080, [8080], None], ids=repr)
def test_what_is_no_address_is_told(url: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAIDMQ_URL", "8080")
    with pytest.raises(InvalidArgument, match=r"8080'? is not a broker's address: give it as http://host:port"):
        Client(url)


def test_what_people_print_says_what_it_is(broker: InMemoryBroker, topic: str) -> None:
    with Client(broker.url) as client:
        assert repr(client) == f"Client({broker.url!r})"
        client.create_topic(topic)
        with client.producer(topic) as producer:
            assert repr(producer) == f"Producer({topic!r}, id={producer.producer_id!r})"
            receipt = producer.send(b"x")
            acknowledged = receipt.result()
            assert repr(receipt) == f"<Receipt {acknowledged}>"
        with pytest.raises(Exception, match="nothing-there"), client.producer("nothing-there") as producer:
            receipt = producer.send(b"x")
            with pytest.raises(Exception, match="nothing-there"):
                receipt.result()
            assert repr(receipt).startswith("<Receipt failed: ")
            raise ValueError("nothing-there")


def test_publish_takes_the_values_that_tables_take(broker: InMemoryBroker, topic: str) -> None:
    values = [Decimal("1.10"), datetime(2024, 1, 31, tzinfo=UTC), datetime(2024, 1, 31).date(), True, 7, {"a": None}]
    with Client(broker.url) as client:
        client.create_topic(topic)
        for value in values:
            client.publish(topic, value, key=7)
        for value in values:
            client.publish_table(topic, pa.table({"k": [7], "v": [value]}), key="k", value="v")
        stored = [(message.key, message.value, message.headers) for message in client.browse(topic)]
    assert stored[: len(values)] == stored[len(values) :]
    assert stored[0] == (b"7", b"1.10", {"content-type": b"application/json"})
