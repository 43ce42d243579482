"""A moto server in a process of its own, whose conditional puts hold under concurrency.

    python -m tests.support.s3_server      serves on a free port and prints it

moto checks a put's condition and then writes the object without a lock between, on a server with threads: two
writers were seen to win. The lock here makes it what S3 is. It fails when `S3Faults` tells it to.
"""

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tests.support.processes import child_environment, end_with_us, stop
from tests.support.s3_faults import FaultyApplication

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
    """A running server; its endpoint URL. Raises `RuntimeError` where it does not come up."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.s3_server"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=child_environment(),
    )
    end_with_us(process)
    try:
        assert process.stdout is not None
        with contextlib.closing(process.stdout) as output:
            port = output.readline().strip()
            if not port:
                raise RuntimeError(f"the moto server ended with {process.wait(START_SECONDS)} before it served")
            yield f"http://127.0.0.1:{port}"
    finally:
        stop(process)


def _one_at_a_time(call: Callable[..., Any]) -> Callable[..., Any]:
    lock = threading.Lock()

    def locked(*args: Any, **kwargs: Any) -> Any:
        with lock:
            return call(*args, **kwargs)

    return locked


def main() -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from moto.s3.responses import S3Response
    from werkzeug.serving import make_server

    for name in ("put_object", "delete_object"):
        setattr(S3Response, name, _one_at_a_time(getattr(S3Response, name)))
    application = FaultyApplication(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
