"""`mq healthcheck`: asks the broker with these settings on this machine whether it is alive. Images use it."""

import contextlib
import http.client
import inspect
import os
import ssl
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Annotated

import typer

from filer.errors import InvalidInput
from mq.base.settings import BrokerSettings
from mq.cli.failures import CommandFailed
from mq.cli.options import duration_seconds
from mq.cli.output import print_lines
from mq.cli.server.settings_options import settings_of, with_settings_options

_TIMEOUT_SECONDS = 5.0
_PATH = "/livez"
# The address to ask, for a broker that listens at all addresses of its machine.
_NEAR = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_OWN = [
    inspect.Parameter(
        "pid",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[
            int | None,
            typer.Option(
                "--pid",
                metavar="N",
                help="Take the options of this process, an mq serve: 1 is that of a container.",
                show_default=False,
            ),
        ],
    ),
    inspect.Parameter(
        "timeout",
        inspect.Parameter.KEYWORD_ONLY,
        default=_TIMEOUT_SECONDS,
        annotation=Annotated[
            float,
            typer.Option(
                "--timeout",
                parser=duration_seconds(0.1, 60),
                metavar="DURATION",
                show_default=False,
                help="How long to wait for an answer (default: 5s).",
            ),
        ],
    ),
]


def _healthcheck(config: Path | None, quiet: bool, pid: int | None, timeout: float, **flags: str | None) -> None:
    """Ask the broker that runs here with the same options as `mq serve` whether it is alive.

    The exit code is 0 only if it answers. It needs no token, and does not look at the broker's certificate.
    """
    if pid is not None:
        _run_as(pid, timeout, quiet=quiet)
        return
    url = ask(settings_of(flags, os.environ, config).settings, timeout)
    if not quiet:
        print_lines(f"{url} answers")


healthcheck = with_settings_options(_healthcheck, _OWN)


def _run_as(pid: int, timeout_seconds: float, *, quiet: bool) -> None:
    """Do the same with the options of that process."""
    app = typer.Typer(add_completion=False)
    app.command()(healthcheck)
    given = [*arguments_of(Path("/proc") / str(pid) / "cmdline"), "--timeout", str(timeout_seconds)]
    typer.main.get_command(app).main([*given, *["--quiet"] * quiet], prog_name="mq serve", standalone_mode=False)


def arguments_of(command_line: Path) -> list[str]:
    """The words behind `serve` in a process's command line, as Linux shows it: words that end with zeros.

    Raises `InvalidInput` if there is no such process, or it is no `mq serve`.
    """
    try:
        words = command_line.read_bytes().decode(errors="surrogateescape").split("\0")[:-1]
    except OSError as error:
        raise InvalidInput(f"--pid: {command_line} cannot be read: {error.strerror}") from error
    # In front there may be an interpreter, and an init with words of its own.
    if "serve" not in words:
        raise InvalidInput(f"--pid: that process runs {' '.join(words)!r}, which is not mq serve")
    return words[words.index("serve") + 1 :]


def ask(settings: BrokerSettings, timeout_seconds: float) -> str:
    """The address at which the broker answers. Raises `CommandFailed` if it does not, or not within that time."""
    if not settings.port:
        raise InvalidInput("--port 0 is any free port: give the broker a port to be asked at")
    host, scheme = _NEAR.get(settings.host, settings.host), "http" if settings.tls_cert is None else "https"
    url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{settings.port}{_PATH}"
    connection = _connection(settings, host, timeout_seconds)
    with contextlib.closing(connection), _told(url, timeout_seconds):
        connection.connect()
        try:
            connection.request("GET", _PATH)
            status = connection.getresponse().status
        except (ssl.SSLError, ConnectionError):
            if settings.tls_client_ca is None:
                raise
            # The broker has shaken hands, and wants another certificate than its own. A broker that refuses is alive.
            return url
    if status != HTTPStatus.OK:
        raise CommandFailed(f"{url} answers {status} instead of 200")
    return url


def _connection(settings: BrokerSettings, host: str, timeout_seconds: float) -> http.client.HTTPConnection:
    if settings.tls_cert is None:
        return http.client.HTTPConnection(host, settings.port, timeout=timeout_seconds)
    # As the kubelet does: names in certificates are for clients on other machines.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if settings.tls_client_ca is not None:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    return http.client.HTTPSConnection(host, settings.port, timeout=timeout_seconds, context=context)


@contextlib.contextmanager
def _told(url: str, timeout_seconds: float) -> Iterator[None]:
    """Report a failure in one line."""
    try:
        yield
    except TimeoutError as error:
        raise CommandFailed(f"{url} does not answer within {timeout_seconds:g} s") from error
    except (OSError, http.client.HTTPException) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or "it hung up"
        raise CommandFailed(f"{url} does not answer: {reason}") from error
