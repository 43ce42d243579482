"""The keys in force: those of a file, which is read again when it changes, or those of a variable."""

import asyncio
from pathlib import Path

from filer.clock import Clock
from filer.errors import InvalidConfig, InvalidInput
from filer.event_log import EventLog
from filer.regular_file import read_regular_file
from mq.base.private_file import tell_if_open
from mq.peer_keys.peer_keys import MOST_BYTES, PeerKeys, parse_peer_keys
from mq.tls.reload import RestingFiles, look_at

LOOK_SECONDS = 0.5
VARIABLE = "BRAIDMQ_PEER_KEYS_TEXT"
"""Contains the keys themselves, if there can be no file. Each program on the machine that may read it knows them."""

_log = EventLog(__name__)


class KeptKeys:
    """The keys in force. `now` may change at any time."""

    def __init__(self, now: PeerKeys) -> None:
        self.now = now

    async def watch(self) -> None:
        """Do nothing: these keys do not change."""


class KeysOfFile(KeptKeys):
    """The keys of a file. Raises `InvalidConfig` if it cannot be used."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path, self._clock = path, clock
        # Before the read: a change during it is seen at the next look.
        self._resting = RestingFiles(look_at((path,)))
        super().__init__(_read(path))

    async def watch(self) -> None:
        """Watch the file until cancelled. While it cannot be used, the keys before it stay in force."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            # In a thread: the file may lie on a network.
            if self._resting.are_new(await asyncio.to_thread(look_at, (self._path,))):
                await self._read_again()

    async def _read_again(self) -> None:
        try:
            self.now = await asyncio.to_thread(_read, self._path)
        except InvalidConfig as error:
            _log.error("peer_keys_unusable", path=str(self._path), error=error)
            return
        _log.info("peer_keys_read", signs=self.now.first.id, keys=len(self.now.keys))


def kept_keys(path: Path | None, text: str | None, clock: Clock) -> KeptKeys | None:
    """Return the keys that the settings name; None if they name none. Raises `InvalidConfig`."""
    if path is not None:
        return KeysOfFile(path, clock)
    if not text:
        return None
    try:
        return KeptKeys(parse_peer_keys(text.encode("utf-8", "replace")))
    except InvalidInput as error:
        raise InvalidConfig(f"{VARIABLE}: {error}") from error


def _read(path: Path) -> PeerKeys:
    tell_if_open(path)
    try:
        return parse_peer_keys(read_regular_file(path, MOST_BYTES + 1))
    except OSError as error:
        raise InvalidConfig(f"{path} (--peer-keys): {error.strerror}") from error
    except InvalidInput as error:
        raise InvalidConfig(f"{path} (--peer-keys): {error}") from error
