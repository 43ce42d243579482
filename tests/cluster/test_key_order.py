"""The order of keys through failures, a split and the death of the broker: workers of all kinds on one group."""

import asyncio
import shlex
import threading
import time
from collections import defaultdict
from pathlib import Path

from braidmq import AsyncClient, AsyncDelivery, Client, Delivery, OutgoingMessage
from tests.support.broker.broker_process import BrokerProcess
from tests.support.process.mq import mq_process
from tests.support.process.processes import free_port

KEYS, EACH = 1000, 2
IDLE_SECONDS = 12.0


class Runs:
    """A file with a line as a handler begins, and one as it ends: key, number, time, outcome."""

    def __init__(self, path: Path) -> None:
        self.path, self._file = path, path.open("ab", buffering=0)

    def handle(self, delivery: Delivery | AsyncDelivery) -> None:
        fails = delivery.deliveries == 1 and hash(delivery.id) % 10 == 0
        self._note(delivery, "began")
        self._note(delivery, "failed" if fails else "done")
        if fails:
            raise ValueError("the first time")

    def _note(self, delivery: Delivery | AsyncDelivery, what: str) -> None:
        self._file.write(f"{delivery.key_text} {delivery.value_text} {what} {time.time_ns()}\n".encode())

    def close(self) -> None:
        self._file.close()


def complaints(lines: list[str]) -> list[str]:
    """What is wrong with the runs of handlers: overlaps, and a message before the one ahead of it was done."""
    found: list[str] = []
    by_key: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for key, number, what, at in map(str.split, lines):
        by_key[key].append((int(at), int(number), what))
    for key, told in by_key.items():
        running: int | None = None
        done: set[int] = set()
        for _, number, what in sorted(told):
            if what == "began":
                if running is not None:
                    found.append(f"{key}: {number} began while {running} ran")
                if missing := set(range(number)) - done:
                    found.append(f"{key}: {number} began before {sorted(missing)} were done")
                running = number
            else:
                running = None
                if what == "done":
                    done.add(number)
        if len(done) != EACH:
            found.append(f"{key}: only {sorted(done)} were done")
    return found


def test_each_keys_handlers_run_in_order_and_never_at_once(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "runs")
    command = (
        f'read n; note() {{ echo "$MQ_KEY $n $1 $(date +%s%N)" >> {shlex.quote(str(runs.path))}; }}; '
        "note began; note done"
    )
    with BrokerProcess(data=tmp_path / "data", port=free_port()) as broker, Client(broker.url) as client:
        client.create_topic("t", key_type="string")
        client.group("t", "g").create(order="key", lease_seconds=4, backoff_seconds=[0], max_deliveries=100)
        client.publish_many("t", [OutgoingMessage(str(n), key=f"k{key}") for n in range(EACH) for key in range(KEYS)])

        async def work() -> None:
            async def handle(delivery: AsyncDelivery) -> None:
                await asyncio.sleep(0)
                runs.handle(delivery)

            async with AsyncClient(broker.url) as own:
                worker = own.worker("t", group="g", idle_seconds=IDLE_SECONDS)
                await worker.run(handle, concurrency=8, on_error=lambda *_: None, signals=False)

        threaded = client.worker("t", group="g", idle_seconds=IDLE_SECONDS)
        threads = [
            threading.Thread(target=lambda: asyncio.run(work())),
            threading.Thread(target=lambda: threaded.run(runs.handle, concurrency=8, on_error=lambda *_: None)),
        ]
        options = ["--group", "g", "--idle", f"{IDLE_SECONDS:g}s", "--concurrency", "3", "--url", broker.url]
        with mq_process("work", "t", *options, "--", "sh", "-c", command) as commands:
            for thread in threads:
                thread.start()
            while runs.path.stat().st_size < 10_000:
                time.sleep(0.01)
            client.split_segment("t", 0)
            broker.kill()
            broker.start()
            for thread in threads:
                thread.join()
            assert commands.wait(120) == 0
        assert client.group("t", "g").describe().lag.messages == 0
    runs.close()
    assert complaints(runs.path.read_text().splitlines()) == []
