"""The tokens that a broker accepts by its settings, kept up to date while it runs."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import orjson

from filer.clock import Clock, comes_within
from filer.errors import InvalidConfig, InvalidInput
from filer.event_log import EventLog
from filer.regular_file import read_regular_file
from filer.stores.store import Store
from mq.base.settings import BrokerSettings
from mq.security.credentials import Credentials, Known
from mq.security.fetching import fetch
from mq.security.issuer_keys import Fetch, IssuerFailed, IssuerKeys
from mq.security.key_ring import MOST_BYTES, Key, KeyRing, parse_key_set
from mq.security.open_access import OpenAccess
from mq.security.policy.document import Decisions
from mq.security.policy.in_force import PolicyInForce
from mq.security.signed_tokens import OWN_ISSUER, Audience
from mq.security.standing import REVIEW_SECONDS
from mq.security.static_tokens import MOST_FILE_BYTES, StaticTokens, parse_static_tokens

T = TypeVar("T")
ISSUER_SECONDS = 3.0
"""How long a start waits for the issuer: one that has stopped stops no broker."""

_log = EventLog(__name__)


class TokenAccess(OpenAccess):
    """The access of a broker that takes tokens."""

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock,
        store: Store,
        on_policy_failure: Callable[[], None],
        fetch: Fetch = fetch,
    ) -> None:
        self._clock = clock
        self._keys = _File("--token-keys", settings.token_keys, _parse_keys, KeyRing(), MOST_BYTES)
        self._static = _File(
            "--static-tokens", settings.static_tokens, parse_static_tokens, StaticTokens(), MOST_FILE_BYTES
        )
        issuer = settings.oidc_issuer
        self._issuer = None if issuer is None else IssuerKeys(issuer, fetch, clock)
        self._of_issuer: list[Key] = []
        self._issuer_asked = asyncio.Event()
        self._known = Known()
        self._checked = _credentials(settings, clock, self._issuer)
        self._policy = PolicyInForce(store, clock, lambda _: self._use(), on_policy_failure)
        super().__init__(self._checked, clock, self._policy)

    async def open(self) -> None:
        """Read the files and the policy once. Does not wait for the issuer.

        Raises `InvalidConfig` if a file cannot be used, and `CorruptFile` and `StoreError` if the policy cannot be
        used.
        """
        for file in (self._keys, self._static):
            try:
                await asyncio.to_thread(file.read_again)
            except Exception as error:
                why = getattr(error, "strerror", None) or str(error) or type(error).__name__
                raise InvalidConfig(f"{file.path} ({file.flag}): {why}") from error
        await self._policy.open()
        self._use()

    async def issuer_asked(self) -> None:
        """Wait until `watch` has asked the issuer once, with any result, or for a few seconds.

        A broker that takes requests earlier refuses good tokens, and refused clients do not come again.
        """
        if self._issuer is not None:
            await comes_within(self._clock, self._issuer_asked, ISSUER_SECONDS)

    async def watch(self) -> None:
        """Read each change. A version that cannot be used leaves the one before in force, and is logged."""
        await asyncio.gather(self._watch_files(), self._watch_issuer(), self._policy.watch())

    async def _watch_files(self) -> None:
        while True:
            await self._clock.sleep(REVIEW_SECONDS)
            changed = [await self._has_changed(file) for file in (self._keys, self._static)]
            if any(changed):
                self._use()
                _log.info("credentials_read", keys=len(self._known.keys), static_tokens=len(self._static.content))

    async def _watch_issuer(self) -> None:
        issuer = self._issuer
        if issuer is None:
            return
        while True:
            if issuer.is_due:
                try:
                    keys = await issuer.fetch()
                except IssuerFailed as error:
                    _log.warning("issuer_failed", issuer=issuer.issuer, error=error)
                else:
                    self._take(keys)
                self._issuer_asked.set()
            await self._clock.sleep(REVIEW_SECONDS)

    def _take(self, keys: list[Key]) -> None:
        """Use the issuer's current keys. Keys that it has dropped are not good any more."""
        before = [(key.key_id, key.public_key) for key in self._of_issuer]
        if [(key.key_id, key.public_key) for key in keys] != before:
            self._of_issuer = keys
            self._use()
            _log.info("issuer_keys_read", keys=len(keys))

    def _use(self) -> None:
        ring = self._keys.content
        if self._issuer is not None:
            ring = ring.with_keys_of(self._issuer.issuer, self._of_issuer)
        self._known = Known(ring, self._static.content, Decisions(self._policy.policy))
        self._checked.use(self._known)
        self.standings.review()

    async def _has_changed(self, file: "_File[KeyRing] | _File[StaticTokens]") -> bool:
        try:
            return await asyncio.to_thread(file.read_again)
        except Exception as error:
            # Whatever a library raises for the file: it is looked at again, or no revocation would count any more.
            _log.error("credentials_unusable", path=str(file.path), error=error)
            return False


def _credentials(settings: BrokerSettings, clock: Clock, issuer: IssuerKeys | None) -> Credentials:
    of_issuers = {} if issuer is None else {issuer.issuer: settings.oidc_audience or settings.cluster}
    on_unknown_key = None if issuer is None else issuer.ask
    return Credentials(
        clock,
        Audience(settings.cluster, of_issuers),
        on_unknown_key=on_unknown_key,
        # A user of this machine is served for being one. So a certificate is no reason to grant it less.
        takes_certificates=settings.authorizer == "tokens",
    )


class _File(Generic[T]):
    """The content of a file. It counts as changed when its size, its times or the file behind its name differ."""

    def __init__(self, flag: str, path: Path | None, parse: Callable[[bytes], T], empty: T, most_bytes: int) -> None:
        self.flag, self.path, self.content = flag, path, empty
        self._parse, self._most_bytes = parse, most_bytes
        self._seen: tuple[int, ...] | None = None

    def read_again(self) -> bool:
        """Read the file if it has changed, and return whether it has.

        Raises `OSError` and `InvalidInput`, once for each change.
        """
        if self.path is None:
            return False
        status = self.path.stat()
        now = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if now == self._seen:
            return False
        self._seen = now
        self.content = self._parse(read_regular_file(self.path, self._most_bytes + 1))
        return True


def _parse_keys(text: bytes) -> KeyRing:
    keys = parse_key_set(text, OWN_ISSUER, strict=True)
    if any("d" in key for key in orjson.loads(text)["keys"]):
        raise InvalidInput(
            "it has private keys, which brokers must not have: give them the public ones, as mq token public-keys "
            "prints them"
        )
    return KeyRing(keys)
