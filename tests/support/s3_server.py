"""The S3 server of `mq local` in a process of its own: moto, whose conditional puts hold under concurrency."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from tests.support.processes import child_environment, stop

START_SECONDS = 60


@contextlib.contextmanager
def s3_server() -> Iterator[str]:
    """A running server; its endpoint URL. Raises `RuntimeError` where it does not come up."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mq.local.s3_server", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=child_environment(),
    )
    try:
        assert process.stdout is not None
        with contextlib.closing(process.stdout) as output:
            port = output.readline().strip()
            if not port:
                raise RuntimeError(f"the moto server ended with {process.wait(START_SECONDS)} before it served")
            yield f"http://127.0.0.1:{port}"
    finally:
        stop(process)
