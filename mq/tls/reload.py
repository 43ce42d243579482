"""Reads certificates and keys again when their files change, without a restart."""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from typing import TypeAlias

from filer.clock import Clock
from filer.event_log import EventLog
from mq.tls.contexts import Contexts, TlsFiles, read_contexts
from mq.tls.newest_context import NewestContext

LOOK_SECONDS = 0.5
Look: TypeAlias = tuple[tuple[int, ...] | None, ...]

_log = EventLog(__name__)


def look_at(files: Sequence[Path]) -> Look:
    """Return a value that differs once a file is another one, or has changed; None for a missing one.

    Links are followed: Kubernetes swaps the link to a folder that has all files.
    """
    return tuple(_look_at(each) for each in files)


def _look_at(file: Path) -> tuple[int, ...] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


AGAIN_SECONDS = 5.0
"""Bad files are tried again this often: a certificate may become valid later."""


class RestingFiles:
    """Reports each change once, when nothing has changed from one look to the next.

    A certificate and its key are two files: while one of them is replaced, they do not fit.
    """

    def __init__(self, first: Look) -> None:
        self._taken = self._before = first

    def are_new(self, look: Look) -> bool:
        """Whether the files have changed since they were taken, and rest. Then they count as taken."""
        rests, self._before = look == self._before, look
        if look == self._taken or not rests:
            return False
        self._taken = look
        return True


class Again:
    """When bad files are tried again, although they have not changed, and why they were bad."""

    def __init__(self) -> None:
        self.why = ""
        self._due_seconds = inf

    def has_failed(self, why: str, now_seconds: float) -> bool:
        """Note that they cannot be used now; returns whether that is news."""
        is_news, self.why = why != self.why, why
        self._due_seconds = now_seconds + AGAIN_SECONDS
        return is_news

    def has_worked(self) -> None:
        """Note that they are used."""
        self.why, self._due_seconds = "", inf

    def is_due(self, now_seconds: float) -> bool:
        """Whether to try them now."""
        return now_seconds >= self._due_seconds


class Certificates:
    """The TLS contexts of a listener, from its present files. Raises `InvalidConfig` if they cannot be used.

    `expires_seconds` is when its certificate expires, since the epoch; None if it has none.
    """

    def __init__(self, files: TlsFiles, clock: Clock) -> None:
        self._named, self._clock, self._files = files, clock, files.all
        # Before the read: a change during it is seen at the next look.
        self._resting = RestingFiles(look_at(self._files))
        self._again, self._told_expired_seconds = Again(), 0
        read = read_contexts(files)
        self.server = None if read.server is None else NewestContext.of(read.server, server_side=True)
        self.peers = None if read.peers is None else NewestContext.of(read.peers, server_side=False)
        self.listener, self.expires_seconds = files.listener, _seconds_of(read.expires)

    async def watch(self) -> None:
        """Watch the files until cancelled."""
        while self._files:
            await self._clock.sleep(LOOK_SECONDS)
            # In a thread: the files may lie on a network.
            are_new = self._resting.are_new(await asyncio.to_thread(look_at, self._files))
            if are_new or self._again.is_due(self._clock.monotonic_seconds()):
                await self._read_again()
            self._tell_if_expired()

    def _tell_if_expired(self) -> None:
        """Log once that the certificate in use has expired: clients refuse it, and new files are awaited."""
        if self.expires_seconds is None or self.expires_seconds == self._told_expired_seconds:
            return
        if self._clock.now_us() >= self.expires_seconds * 1e6:
            self._told_expired_seconds = self.expires_seconds
            _log.error("tls_certificate_expired", listener=self._named.listener, why=self._again.why)

    async def _read_again(self) -> None:
        """Use the present content of the files, all of it or nothing."""
        read: Callable[[TlsFiles], Contexts] = read_contexts
        try:
            found = await asyncio.to_thread(read, self._named)
        except Exception as error:
            # Any error of a library about a file: the files are looked at again.
            if self._again.has_failed(str(error), self._clock.monotonic_seconds()):
                _log.warning("tls_not_reloaded", listener=self._named.listener, error=error)
            return
        self._again.has_worked()
        if self.server is not None and found.server is not None:
            self.server.use(found.server)
        if self.peers is not None and found.peers is not None:
            self.peers.use(found.peers)
        self.expires_seconds = _seconds_of(found.expires)
        _log.info("tls_reloaded", listener=self._named.listener, expires=found.expires)


def _seconds_of(expires: str | None) -> int | None:
    """Parse OpenSSL's form, `Jan  5 09:34:43 2027 GMT`."""
    return ssl.cert_time_to_seconds(expires) if expires else None
