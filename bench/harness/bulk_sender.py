"""Send many messages to a topic, inline or as a bulk load, in a separate process, so that its cost is not the broker's.

    python -m bench.harness.bulk_sender inline|loaded URL TOPIC MESSAGES VALUE_BYTES SEGMENTS

It has the lowest priority, because it represents clients on other machines. Prints the seconds that sending took.
"""

import os
import sys
import time

import numpy as np
import pyarrow as pa

from braidmq import Client

KEYS = 100_000
_CHUNK_ROWS = 250_000
_NICENESS = 19


def main() -> None:
    variant, url, topic, messages, value_bytes, segments = sys.argv[1:]
    os.nice(_NICENESS)
    table = message_table(int(messages), int(value_bytes))
    with Client(url) as client:
        started_seconds = time.perf_counter()
        if variant == "loaded":
            client.load(topic, table, key="key", value="value", load="bench", segments=int(segments))
        else:
            client.publish_table(topic, table, key="key", value="value")
        print(time.perf_counter() - started_seconds)


def message_table(messages: int, value_bytes: int) -> pa.Table:
    """Messages with random values, which do not compress, under a hundred thousand keys in random order."""
    generator = np.random.default_rng(1)
    keys = pa.array([b"user-%d" % number for number in range(KEYS)], pa.binary())
    counts = [min(_CHUNK_ROWS, messages - first) for first in range(0, messages, _CHUNK_ROWS)]
    return pa.concat_tables(_chunk(generator, keys, count, value_bytes) for count in counts)


def _chunk(generator: np.random.Generator, keys: pa.Array, count: int, value_bytes: int) -> pa.Table:
    ends = np.arange(count + 1, dtype=np.int32) * value_bytes
    octets = generator.bytes(count * value_bytes)
    values = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(octets)])
    return pa.table({"key": keys.take(pa.array(generator.integers(0, KEYS, count))), "value": values})


if __name__ == "__main__":
    main()
