"""The S3 server of `mq local` with slow puts: `python -m bench.harness.slow_s3_server PORT PUT_DELAY_SECONDS`.

It counts the requests that it gets (`RequestCounts`).
"""

import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from bench.harness.request_counts import RequestCounts
from mq.local.s3_server import main


def slow_puts(delay_seconds: float) -> Callable[[Any], Any]:
    """Wrap a WSGI application: every put waits before it is served, as with a distant store."""

    def around(application: Any) -> Any:
        def serve(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            if environ["REQUEST_METHOD"] == "PUT":
                time.sleep(delay_seconds)
            answer: Iterable[bytes] = application(environ, start_response)
            return answer

        return RequestCounts(serve)

    return around


if __name__ == "__main__":
    main(int(sys.argv[1]), around=slow_puts(float(sys.argv[2])))
