"""An S3 server that fails on demand: the layer in front of the server, and its remote control.

faults = S3Faults(endpoint)
faults.unavailable()        # every request is answered 503 Slow Down
faults.hang(after=True)     # every request takes effect, and its answer waits
faults.heal()
"""

import json
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import httpx

CONTROL_PATH = "/braidmq-test-faults"
TIMEOUT_SECONDS = 30
_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


@dataclass(frozen=True, slots=True)
class Manner:
    """How requests are treated. With `after` they take effect first, and only their answers are affected."""

    kind: Literal["well", "unavailable", "hanging"] = "well"
    after: bool = False
    put_latency_seconds: float = 0.0


class FaultyApplication:
    """A WSGI application that disturbs requests for another one, as set through `CONTROL_PATH`."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._manner = Manner()
        self._told = threading.Condition()
        self._struck = 0

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] == CONTROL_PATH:
            return self._control(environ, start_response)
        manner = self._manner
        if environ["REQUEST_METHOD"] == "PUT" and manner.put_latency_seconds:
            time.sleep(manner.put_latency_seconds)
        if manner.kind == "well":
            return self._application(environ, start_response)
        with self._told:
            self._struck += 1
        answers = [_answer_of(self._application, environ)] if manner.after else []
        if manner.kind == "unavailable":
            if not answers:
                # A body left unread would reset the connection before the answer is read.
                _body_of(environ)
            return _unavailable(environ, start_response)
        self._wait_for_other_manners(manner)
        status, headers, body = answers[0] if answers else _answer_of(self._application, environ)
        start_response(status, headers)
        return [body]

    def _wait_for_other_manners(self, manner: Manner) -> None:
        with self._told:
            self._told.wait_for(lambda: self._manner is not manner)

    def _control(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        with self._told:
            if environ["REQUEST_METHOD"] == "PUT":
                self._manner = Manner(**json.loads(_body_of(environ)))
                self._told.notify_all()
            answer = json.dumps({"struck": self._struck}).encode()
        start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(answer)))])
        return [answer]


class S3Faults:
    """Sets how the server at an endpoint treats requests from now on."""

    def __init__(self, endpoint: str) -> None:
        self._url = endpoint + CONTROL_PATH

    def unavailable(self, *, after: bool = False) -> None:
        """Answer 503 to everything, at once or after it has taken effect."""
        self._tell(Manner("unavailable", after=after))

    def hang(self, *, after: bool = False) -> None:
        """Answer nothing until another fault or `heal`; then continue with the waiting requests."""
        self._tell(Manner("hanging", after=after))

    def slow_puts(self, seconds: float) -> None:
        """Delay every put."""
        self._tell(Manner(put_latency_seconds=seconds))

    def heal(self) -> None:
        """Serve normally again."""
        self._tell(Manner())

    @property
    def struck(self) -> int:
        """How many requests a fault has affected so far, without slow puts."""
        answer = httpx.get(self._url, timeout=TIMEOUT_SECONDS, trust_env=False)
        return int(answer.raise_for_status().json()["struck"])

    def _tell(self, manner: Manner) -> None:
        httpx.put(self._url, json=asdict(manner), timeout=TIMEOUT_SECONDS, trust_env=False).raise_for_status()


def _answer_of(application: Application, environ: dict[str, Any]) -> tuple[str, list[tuple[str, str]], bytes]:
    """The complete answer of the application, after the request has taken effect."""
    told: list[tuple[str, list[tuple[str, str]]]] = []
    body = b"".join(application(environ, lambda status, headers, *_: told.append((status, headers))))
    status, headers = told[0]
    return status, headers, body


def _unavailable(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(_SLOW_DOWN)))]
    start_response("503 Slow Down", headers)
    return [b"" if environ["REQUEST_METHOD"] == "HEAD" else _SLOW_DOWN]


def _body_of(environ: dict[str, Any]) -> bytes:
    body: bytes = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    return body
