"""Opens the files of a load: `python -m mq.bulk_load.load_check_process LIMIT_BYTES CPU_SECONDS TOTAL_SECONDS`.

It takes jobs on its standard input, and asks for bytes of files on its standard output. So it needs no credentials of
the store, and no network connection. Every frame is four bytes of length and as many bytes of content. The process may
take `LIMIT_BYTES` more memory than at its start, and `CPU_SECONDS` of processor time for the bytes of one request: then
SIGPROF ends it. Of all of them it may take `TOTAL_SECONDS`: then SIGXCPU ends it. It also ends when its input does, so
with the broker.
"""

import math
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import pyarrow as pa

from filer.bulk_load.load_check import FileClaim, check_load_file
from filer.bulk_load.load_segment import LoadSegment
from filer.bulk_load.row_group_lots import Ranges
from filer.errors import LoadRefused
from filer.format.schema import MessageSchema
from filer.refused_imports import keep_pandas_out

NICENESS = 10


def main(jobs: BinaryIO, answers: BinaryIO, limit_bytes: int, cpu_seconds: float, total_seconds: int) -> None:
    """Check files until the input ends."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    # Publishes go first, since bulk loads are not urgent.
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    most = _address_space_bytes() + limit_bytes
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    began_seconds = time.process_time()
    total = math.ceil(began_seconds) + total_seconds
    resource.setrlimit(resource.RLIMIT_CPU, (total, total + 1))
    while job := _read(jobs):
        answer = _check(orjson.loads(job), jobs, answers, cpu_seconds)
        _write(answers, {**answer, "cpu_seconds": time.process_time() - began_seconds})


def _check(job: Any, jobs: BinaryIO, answers: BinaryIO, cpu_seconds: float) -> dict[str, object]:
    def read(ranges: Ranges) -> list[bytes]:
        _write(answers, {"need": ranges})
        parts = [_read(jobs) for _ in ranges]
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        return parts

    # For a schema, the job has its id.
    about = {**job["segment"], "schema": MessageSchema.of(*job["segment"]["schema"].split("/"))}
    try:
        check_load_file(read, FileClaim(**job["claim"]), LoadSegment(**about))
    except LoadRefused as error:
        return {"refused": str(error)}
    except MemoryError:
        return {"refused": "it takes too much memory to open"}
    return {"ok": True}


def _read(stream: BinaryIO) -> bytes:
    """Return the next frame; empty at the end of the input."""
    head = stream.read(4)
    return stream.read(int.from_bytes(head, "big")) if len(head) == 4 else b""


def _write(stream: BinaryIO, document: dict[str, object]) -> None:
    data = orjson.dumps(document)
    stream.write(len(data).to_bytes(4, "big") + data)
    stream.flush()


def _address_space_bytes() -> int:
    return int(Path("/proc/self/statm").read_bytes().split()[0]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    keep_pandas_out()
    main(sys.stdin.buffer, sys.stdout.buffer, int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
