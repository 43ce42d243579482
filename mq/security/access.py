"""The credentials that a broker accepts, as its settings say, kept up to date while it runs."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from filer.clock import Clock
from filer.errors import InvalidConfig, InvalidInput
from filer.event_log import EventLog
from mq.base.settings import BrokerSettings
from mq.security.credentials import Credentials, Known
from mq.security.key_ring import MOST_BYTES, KeyRing, parse_key_set
from mq.security.signed_tokens import OWN_ISSUER, Audience
from mq.security.standing import Standings
from mq.security.static_tokens import MOST_FILE_BYTES, StaticTokens, parse_static_tokens

RELOAD_SECONDS = 0.5
"""So often files are looked at: who changes one waits for less than a second."""
T = TypeVar("T")

_log = EventLog(__name__)


class Access:
    """The credentials of one broker. Without `--authorizer tokens` it asks for none."""

    def __init__(self, settings: BrokerSettings, clock: Clock) -> None:
        self._clock = clock
        self._keys = _File(settings.token_keys, _parse_keys, KeyRing(), MOST_BYTES)
        self._static = _File(settings.static_tokens, parse_static_tokens, StaticTokens(), MOST_FILE_BYTES)
        self.credentials = (
            Credentials(clock, Audience(settings.cluster, {})) if settings.authorizer == "tokens" else None
        )
        self.standings = Standings(self.credentials, clock)

    async def open(self) -> None:
        """Read everything once. Raises `InvalidConfig` if a file cannot be used."""
        if self.credentials is None:
            return
        for file in (self._keys, self._static):
            try:
                await asyncio.to_thread(file.read_again)
            except (OSError, InvalidInput) as error:
                raise InvalidConfig(f"{file.path}: {getattr(error, 'strerror', None) or error}") from error
        self.credentials.use(Known(self._keys.content, self._static.content))

    async def watch(self) -> None:
        """Read again what changes. A file that cannot be used leaves in force what it had before, and is told."""
        if self.credentials is None:
            return
        while True:
            await self._clock.sleep(RELOAD_SECONDS)
            changed = [await self._has_changed(file) for file in (self._keys, self._static)]
            if any(changed):
                self.credentials.use(Known(self._keys.content, self._static.content))
                self.standings.review()
                _log.info("credentials_read", keys=len(self._keys.content), static_tokens=len(self._static.content))

    async def _has_changed(self, file: "_File[KeyRing] | _File[StaticTokens]") -> bool:
        try:
            return await asyncio.to_thread(file.read_again)
        except (OSError, InvalidInput) as error:
            _log.error("credentials_unusable", path=str(file.path), error=error)
            return False


class _File(Generic[T]):
    """What is in a file. It counts as changed when its size, its times or the file behind its name differ."""

    def __init__(self, path: Path | None, parse: Callable[[bytes], T], empty: T, most_bytes: int) -> None:
        self.path, self.content = path, empty
        self._parse, self._most_bytes = parse, most_bytes
        self._seen: tuple[int, ...] | None = None

    def read_again(self) -> bool:
        """Read the file if it has changed, and say so. Raises `OSError` and `InvalidInput`, once for each change."""
        if self.path is None:
            return False
        status = self.path.stat()
        now = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if now == self._seen:
            return False
        self._seen = now
        with self.path.open("rb") as file:
            self.content = self._parse(file.read(self._most_bytes + 1))
        return True


def _parse_keys(text: bytes) -> KeyRing:
    return KeyRing(parse_key_set(text, OWN_ISSUER, strict=True))
