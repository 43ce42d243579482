"""Values in a topic of JSON: a text is a JSON string, by every call, and bytes are JSON text as they are."""

from typing import Any

import pyarrow as pa
import pytest

from braidmq import Client, InvalidRequest, OutgoingMessage
from braidmq.publish import publisher
from braidmq.publish.encoding import outgoing
from braidmq.testing import InMemoryBroker

TEXTS = ["123", "true", "null", "now", '"', "é\n", ""]


@pytest.fixture
def client(broker: InMemoryBroker, topic: str) -> Any:
    with broker.client() as client:
        client.create_topic(topic, value_type="json")
        yield client


def found(client: Client, topic: str) -> list[Any]:
    return [message.json() for message in client.browse(topic)]


def test_texts_that_are_published_one_by_one(client: Client, topic: str) -> None:
    for text in TEXTS:
        client.publish(topic, text, key="k")
        client.publish(topic, text, headers={"a": "b"})
    assert found(client, topic) == [text for text in TEXTS for _ in range(2)]


async def test_texts_of_the_async_client(broker: InMemoryBroker, topic: str) -> None:
    async with broker.async_client() as client:
        await client.create_topic(topic, value_type="json")
        for text in TEXTS:
            await client.publish(topic, text)
        async with client.producer(topic) as producer:
            for text in TEXTS:
                await producer.send(text, key="k")
        assert [message.json() async for message in client.browse(topic)] == TEXTS * 2


@pytest.mark.parametrize("count", [2, 40])
def test_texts_and_bytes_together(client: Client, topic: str, count: int) -> None:
    """A few go as JSON, more as Arrow; and some to each of two segments."""
    values = [value for number in range(count) for value in (str(number), str(number).encode(), None)]
    client.publish_many(topic, values)
    two = f"{topic}.two"
    client.create_topic(two, value_type="json", segments=2)
    client.publish_many(two, [OutgoingMessage(value, key=str(at)) for at, value in enumerate(values)])
    expected = [value for number in range(count) for value in (str(number), number, None)]
    assert found(client, topic) == expected
    read = {message.key_text: message.json() for message in client.browse(two)}
    assert [read[str(at)] for at in range(len(values))] == expected


def test_texts_of_a_producer(client: Client, topic: str) -> None:
    with client.producer(topic) as producer:
        for number in range(100):
            producer.send(str(number) if number % 3 else str(number).encode(), key="k")
            producer.send(str(number), key="k", headers={"a": "b"})
    assert found(client, topic) == [
        value for number in range(100) for value in (str(number) if number % 3 else number, str(number))
    ]


def test_a_text_that_goes_by_reference(client: Client, topic: str) -> None:
    text = '"\n' * 600_000
    client.publish(topic, text)
    (message,) = client.browse(topic)
    with client.open(message) as payload:
        assert payload.read() == ('"' + r"\"\n" * 600_000 + '"').encode()


def test_bytes_and_columns_are_json_text(client: Client, topic: str) -> None:
    client.publish(topic, b" null")
    client.publish_table(topic, pa.table({"v": ["12", "[3]"]}), value="v")
    assert [message.value for message in client.browse(topic)] == [b" null", b"12", b"[3]"]
    with pytest.raises(InvalidRequest, match="must be JSON"):
        client.publish(topic, b"now")


def test_text_of_control_characters_alone_is_refused_as_arrow(client: Client, topic: str) -> None:
    """As JSON it takes six times as many bytes as were sent."""
    with pytest.raises(InvalidRequest, match="as a JSON string, this text takes more than"):
        client.publish_many(topic, ["\x01" * 100_000])
    client.publish_many(topic, ["\n" * 100_000])
    assert found(client, topic) == ["\n" * 100_000]


async def test_texts_in_other_topics_stay_as_they_are(broker: InMemoryBroker, topic: str) -> None:
    async with broker.async_client() as client:
        await client.create_topic(topic, value_type="string")
        await client.publish(topic, "123")
        await client.publish_many(topic, ["a"] * 40)
        assert [message.value async for message in client.browse(topic)] == [b"123"] + [b"a"] * 40


TEXT = b'"' + b"1" * 1000 + b'"'
VALUES = [TEXT] * 1500 + [b"no JSON"] + [TEXT] * 500
KEYS = [b"%d" % number for number in range(len(VALUES))]


@pytest.fixture
def small_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of some hundred rows, each cut by two segments."""
    monkeypatch.setattr(publisher, "REQUEST_BYTES", 600_000)
    monkeypatch.setattr(outgoing, "_BATCH_MESSAGES", 300)


@pytest.mark.usefixtures("small_requests")
async def test_a_row_that_is_refused_is_named_as_that_of_the_table(broker: InMemoryBroker, topic: str) -> None:
    table, named = pa.table({"key": KEYS, "value": VALUES}), f"row {VALUES.index(b'no JSON')} of the table:"
    async with broker.async_client() as client:
        await client.create_topic(topic, value_type="json", segments=2)
        with pytest.raises(InvalidRequest) as refused:
            await client.publish_table(topic, table, key="key", value="value")
        assert str(refused.value).startswith(named)
        assert refused.value.problem is not None and refused.value.problem.detail.startswith(named)
        with pytest.raises(InvalidRequest, match=r"^row 11501 of the table:"):
            await client.publish_table(topic, table, key="key", value="value", first_row=10_001)


@pytest.mark.usefixtures("small_requests")
def test_a_message_that_is_refused_is_named_by_its_number_among_all(broker: InMemoryBroker, topic: str) -> None:
    messages = [OutgoingMessage(value, key=key) for key, value in zip(KEYS, VALUES, strict=True)]
    with broker.client() as client:
        client.create_topic(topic, value_type="json", segments=2)
        with pytest.raises(InvalidRequest, match=r"^messages\[1500\]:"):
            client.publish_many(topic, messages)
        with pytest.raises(InvalidRequest, match=r"^messages\[1\]:"):
            client.publish_many(topic, [b"1", b"no JSON"])
        with pytest.raises(InvalidRequest, match=r"^row 1500 of the table:"):
            client.publish_table(topic, pa.table({"value": VALUES}), value="value")
