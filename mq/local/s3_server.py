"""An S3 server in memory, for `mq local` and tests: `python -m mq.local.s3_server PORT`.

It serves on that port of this machine (0 takes a free one), and prints the port once it serves. The server is moto,
which has threads. It checks the condition of a put and then writes the object, without a lock: two writers were seen to
succeed both. The lock here makes conditional puts hold, as they do on S3.
"""

import sys
import threading
from collections.abc import Callable
from typing import Any

from mq.process.garbage import spare_what_is_loaded

# A request's thread may wait for the interpreter once per other thread, by default 5 ms each time.
SWITCH_INTERVAL_SECONDS = 0.0005


def _one_at_a_time(call: Callable[..., Any]) -> Callable[..., Any]:
    lock = threading.Lock()

    def locked(*args: Any, **kwargs: Any) -> Any:
        with lock:
            return call(*args, **kwargs)

    return locked


def main(port: int, *, around: Callable[[Any], Any] = lambda application: application) -> None:
    """Serve until the process ends; `around` may wrap the WSGI application."""
    from moto.moto_server.werkzeug_app import create_backend_app
    from moto.s3.responses import S3Response
    from werkzeug.serving import make_server

    for name in ("put_object", "delete_object"):
        setattr(S3Response, name, _one_at_a_time(getattr(S3Response, name)))
    # moto's own application would search all of Amazon's services for each request.
    application = around(create_backend_app("s3"))
    server = make_server("127.0.0.1", port, application, threaded=True)
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    spare_what_is_loaded()
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]))
