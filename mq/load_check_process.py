"""The process in which files of a load are opened: `python -m mq.load_check_process LIMIT_BYTES CPU_SECONDS`.

It takes jobs on its standard input and asks for the bytes it wants on its standard output, so it has neither the
store's credentials nor a connection to anything. Every frame is four bytes of length and as many of content. It may
take `LIMIT_BYTES` more memory than it has when it begins, and `CPU_SECONDS` of processor time for what it was given at
a time: then SIGPROF ends it. It ends with its input too, so also when the broker does.
"""

import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import pyarrow as pa

from filer.errors import LoadRefused
from filer.load_check import FileClaim, check_load_file
from filer.load_segment import LoadSegment
from filer.row_group_lots import Ranges
from mq.without_pandas import keep_pandas_out

NICENESS = 10


def main(jobs: BinaryIO, answers: BinaryIO, limit_bytes: int, cpu_seconds: float) -> None:
    """Check files until there are no more."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    # Publishers go first: whoever loads has time.
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    most = _address_space_bytes() + limit_bytes
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    while job := _read(jobs):
        _write(answers, _check(orjson.loads(job), jobs, answers, cpu_seconds))


def _check(job: Any, jobs: BinaryIO, answers: BinaryIO, cpu_seconds: float) -> dict[str, object]:
    def read(ranges: Ranges) -> list[bytes]:
        _write(answers, {"need": ranges})
        parts = [_read(jobs) for _ in ranges]
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        return parts

    try:
        check_load_file(read, FileClaim(**job["claim"]), LoadSegment(**job["segment"]))
    except LoadRefused as error:
        return {"refused": str(error)}
    except MemoryError:
        return {"refused": "it takes too much memory to open"}
    return {"ok": True}


def _read(stream: BinaryIO) -> bytes:
    """The next frame; nothing where there is none."""
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
    main(sys.stdin.buffer, sys.stdout.buffer, int(sys.argv[1]), float(sys.argv[2]))
