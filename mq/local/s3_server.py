"""An S3 server in memory, for `mq local` and tests: `python -m mq.local.s3_server PORT`.

It serves on that port of this machine (0 takes a free one), and prints the port once it serves. The server is moto,
which has threads. It checks the condition of a put and then writes the object, without a lock: two writers have been
seen to succeed both. The lock here makes conditional puts hold, as they do on S3.
"""

import argparse
import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

from waitress.channel import HTTPChannel
from waitress.server import TcpWSGIServer, create_server

from mq.process.garbage import spare_what_is_loaded

# Brokers have 50 connections to their store each. Tests make the server hang, with a thread for each request.
THREADS = 256
_LONGEST_IDLE_SECONDS = 3600
# Bodies stay in memory, as objects do.
_MEMORY_BYTES = 1 << 40
# A request's thread may wait for the interpreter once per other thread, by default 5 ms each time.
SWITCH_INTERVAL_SECONDS = 0.0005


def _one_at_a_time(call: Callable[..., Any]) -> Callable[..., Any]:
    lock = threading.Lock()

    def locked(*args: Any, **kwargs: Any) -> Any:
        with lock:
            return call(*args, **kwargs)

    return locked


def _with_raw_uri(application: Callable[..., Any]) -> Callable[..., Any]:
    """Return the WSGI application with the path as it was sent, under the name where moto looks for it."""

    def named(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        environ["RAW_URI"] = environ["REQUEST_URI"]
        return application(environ, start_response)

    return named


class _Channel(HTTPChannel):
    """A connection on which an empty object can be put: waitress would wait for its body once it has asked for it."""

    def send_continue(self) -> None:
        """Ask a client for the body that it has announced."""
        request = self.request
        is_complete = request is not None and request.completed
        super().send_continue()
        if request is not None:
            request.completed = is_complete


def main(port: int, *, host: str = "127.0.0.1", around: Callable[[Any], Any] = lambda application: application) -> None:
    """Serve until the process ends; `around` may wrap the WSGI application."""
    from moto.moto_server.werkzeug_app import create_backend_app
    from moto.s3.responses import S3Response

    for name in ("put_object", "delete_object"):
        setattr(S3Response, name, _one_at_a_time(getattr(S3Response, name)))
    # moto's own application would search all of Amazon's services for each request.
    application = around(_with_raw_uri(create_backend_app("s3")))
    server = create_server(
        application,
        host=host,
        port=port,
        threads=THREADS,
        connection_limit=4 * THREADS,
        asyncore_use_poll=True,
        channel_timeout=_LONGEST_IDLE_SECONDS,
        inbuf_overflow=_MEMORY_BYTES,
        outbuf_overflow=_MEMORY_BYTES,
        max_request_body_size=_MEMORY_BYTES,
    )
    assert isinstance(server, TcpWSGIServer), "one address makes one server"
    server.channel_class = _Channel
    # A request that waits for a thread is no news.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    spare_what_is_loaded()
    sys.stdout.write(f"{server.getsockname()[1]}\n")
    sys.stdout.flush()
    server.run()


if __name__ == "__main__":
    words = argparse.ArgumentParser(prog="python -m mq.local.s3_server", description="An S3 server in memory.")
    words.add_argument("port", type=int, help="port of this machine to serve on; 0 takes a free one")
    given = words.parse_args().port
    try:
        main(given)
    except (OSError, OverflowError) as error:
        words.exit(1, f"{words.prog}: cannot serve on port {given}: {error}\n")
