"""The S3 server of `mq local` as a separate process: moto, whose conditional puts hold under concurrency.

    python -m tests.support.store.s3_server      serves on a free port and prints it

It fails when `S3Faults` tells it to.
"""

import contextlib
import subprocess
from collections.abc import Iterator

from mq.local.s3_server import main
from tests.support.process.forked_process import ForkedProcess
from tests.support.process.processes import child_environment, end_with_us, stop
from tests.support.store.s3_faults import FaultyApplication

START_SECONDS = 60
S3_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    # Nothing of the person who runs the tests.
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
}


@contextlib.contextmanager
def s3_server() -> Iterator[str]:
    """Run the server; yields its URL. Raises `RuntimeError` if it does not start."""
    process = ForkedProcess("tests.support.store.s3_server", env=child_environment(), stderr=subprocess.DEVNULL)
    end_with_us(process.pid)
    try:
        with contextlib.closing(process.stdout) as output:
            port = output.readline().strip()
            if not port:
                raise RuntimeError(f"the moto server ended with {process.wait(START_SECONDS)} before it served")
            yield f"http://127.0.0.1:{port}"
    finally:
        stop(process)


if __name__ == "__main__":
    main(0, around=FaultyApplication)
