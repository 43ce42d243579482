"""A client in a forked process: all that it was given belongs to the parent."""

import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from itertools import islice

import pytest

from braidmq import ClientClosed
from braidmq.testing import InMemoryBroker

_PROGRAM = """
import faulthandler, multiprocessing, os, sys
from braidmq import Client
client = Client(sys.argv[1])
client.create_topic("forks")
producer = client.producer("forks")
producer.send(b"a").result()

def begin():
    global client
    client = Client(sys.argv[1])

def publish(n):
    return client.publish("forks", str(n)).offset >= 0

if sys.argv[2] == "pool":
    faulthandler.dump_traceback_later(50, exit=True)
    with multiprocessing.get_context("fork").Pool(2, initializer=begin) as pool:
        print(pool.map(publish, range(4)))
elif not (child := os.fork()):
    faulthandler.dump_traceback_later(20, exit=True)
    exec(sys.argv[2])
    sys.exit(5)
else:
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
client.publish("forks", b"still there")
"""


def forked(broker: InMemoryBroker, what: str, source: str = _PROGRAM) -> str:
    """What a program prints that does so in a forked process: its exit code, or the results of a pool."""
    program = [sys.executable, "-c", source, broker.url, what]
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            told, complaints = process.communicate(timeout=100)
        finally:
            # Also those that it has forked, which would run on.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0 and complaints == "", complaints
    return told.strip()


@pytest.mark.parametrize(
    "what",
    [
        pytest.param("sys.exit(5)", id="exit"),
        pytest.param("del client", id="collect"),
        pytest.param("client = Client(sys.argv[1]); client.publish('forks', b'b')", id="replace"),
        pytest.param("producer.close(); client.close()", id="close"),
        pytest.param("with client, producer: sys.exit(5)", id="leave by exit"),
    ],
)
def test_in_a_forked_process_the_end_of_a_client_does_nothing(broker: InMemoryBroker, what: str) -> None:
    assert forked(broker, what) == "5"


def test_processes_of_a_pool_make_clients_of_their_own(broker: InMemoryBroker) -> None:
    assert forked(broker, "pool") == "[True, True, True, True]"


_UNSETTLED = """
import faulthandler, os, sys, time
from braidmq import Client
client = Client(sys.argv[1])
topic = f"forks-{os.getpid()}"
client.create_topic(topic)
client.publish_many(topic, [b"%d" % number for number in range(20)])
worker = client.worker(topic, group="g", name="parent")
deliveries = iter(worker)
held = [next(deliveries) for _ in range(10)]
for delivery in held[:5]:
    delivery.ack()
producer = client.producer(topic, linger_seconds=600)
receipts = [producer.send(b"late %d" % number) for number in range(50)]
if not (child := os.fork()):
    faulthandler.dump_traceback_later(20, exit=True)
    exec(sys.argv[2])
    sys.exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
# Without the parent's word nothing was sent, and nothing of it is given up.
print(sum(receipt.done() for receipt in receipts), sum(m.value.startswith(b"late") for m in client.browse(topic)))
producer.close()
print(sum(receipt.result() is not None for receipt in receipts))
print(sum(m.value.startswith(b"late") for m in client.browse(topic)))
for delivery in held[5:]:
    delivery.ack()
worker.flush()
print(worker.acked)
worker.close()
until = time.monotonic() + 20
# What a claim on its way was given is back once the broker finds the worker gone.
while (group := client.group(topic, "g").describe()).in_flight and time.monotonic() < until:
    time.sleep(0.05)
print(group.in_flight, group.lag.messages)
client.close()
"""


@pytest.mark.parametrize(
    "what",
    [
        pytest.param("sys.exit(5)", id="exit"),
        pytest.param("del client, producer, worker, deliveries, held, receipts; sys.exit(5)", id="collect"),
        pytest.param("producer.close(); worker.close(); client.close()", id="close"),
    ],
)
def test_a_forked_process_leaves_what_is_unsettled_to_its_parent(broker: InMemoryBroker, what: str) -> None:
    """It neither hangs nor sends, and says nothing of them at its end: `forked` wants nothing on stderr."""
    child, before, acknowledged, stored, acked, left = forked(broker, what, _UNSETTLED).splitlines()
    assert (child, before) == ("5", "0 0")
    assert (acknowledged, stored) == ("50", "50")
    # What the parent has not asked for stays for others: 20 and 50, without the 10 that are acked.
    assert (acked, left) == ("10", "0 60")


def in_a_fork(call: Callable[[], object]) -> str:
    """What a call raises in a forked process: its name, or what else has become of it."""
    reader, writer = os.pipe()
    if not (child := os.fork()):
        told = "nothing"
        signal.alarm(20)  # a call that hangs ends the process
        try:
            call()
        except ClientClosed as error:
            told = "forked" if "was forked" in str(error) else str(error)
        except BaseException:
            told = traceback.format_exc()
        finally:
            os.write(writer, told.encode())
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        told = pipe.read().decode()
    os.waitpid(child, 0)
    return told


def test_in_a_forked_process_every_call_is_refused(broker: InMemoryBroker, topic: str) -> None:
    with broker.client() as client:
        client.create_topic(topic)
        client.group(topic, "s").create(mode="stream")
        client.publish_many(topic, [b"a"] * 20)
        messages, worker = client.browse(topic), client.worker(topic, group="g")
        consumer, producer = client.consumer(topic, group="s"), client.producer(topic)
        receipt = producer.send(b"b")
        deliveries, read = iter(worker), iter(consumer)
        next(messages)
        delivery, _ = next(deliveries), next(read)
        calls: list[Callable[[], object]] = [
            lambda: client.publish(topic, b"c"),
            lambda: client.topic(topic),
            lambda: list(client.topics()),
            lambda: next(messages),
            lambda: next(client.subscribe(topic)),
            lambda: producer.send(b"c"),
            producer.flush,
            delivery.ack,
            delivery.release,
            delivery.extend,
            lambda: delivery.__exit__(None, None, None),
            lambda: next(deliveries),
            worker.flush,
            lambda: worker.run(print),
            lambda: next(read),
            consumer.commit,
            client.group(topic, "g").describe,
        ]
        assert [in_a_fork(call) for call in calls] == ["forked"] * len(calls)
        quiet: list[Callable[[], object]] = [
            worker.stop,
            worker.close,
            consumer.stop,
            consumer.close,
            producer.close,
            lambda: worker.__exit__(None, None, None),
            lambda: consumer.__exit__(None, None, None),
            lambda: producer.__exit__(None, None, None),
            lambda: delivery.__exit__(SystemExit, SystemExit(), None),
            lambda: client.__exit__(None, None, None),
        ]
        assert [in_a_fork(call) for call in quiet] == ["nothing"] * len(quiet)
        # The parent has lost nothing by that.
        delivery.ack()
        worker.flush()
        receipt.result()
        assert len(list(islice(deliveries, 19))) == 19 and worker.acked == 1
        worker.close()
        consumer.close()


def test_a_signal_ends_a_process_that_was_forked_from_a_worker(broker: InMemoryBroker, topic: str) -> None:
    with broker.client() as client:
        client.create_topic(topic)
        client.publish(topic, b"a")
        codes = list[int]()
        worker = client.worker(topic, group="g", prefetch=0)

        def fork_and_stop(_: int, __: object) -> None:
            # In the main thread, whose signals are the worker's. The child gets this one when it runs: Python forgets
            # those that come while it forks.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            reader, writer = os.pipe()
            if not (child := os.fork()):
                os.read(reader, 1)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
                os._exit(0)
            os.kill(child, signal.SIGTERM)
            os.write(writer, b".")
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            for end in (reader, writer):
                os.close(end)
            worker.stop()

        before = signal.signal(signal.SIGUSR1, fork_and_stop)
        try:
            worker.run(lambda _: os.kill(os.getpid(), signal.SIGUSR1), concurrency=1)
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert codes == [-signal.SIGTERM]
