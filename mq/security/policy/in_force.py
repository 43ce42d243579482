"""The policy by which one broker decides, kept up to date with the store."""

import asyncio
import json
from collections.abc import Callable

from filer import keys
from filer.clock import Clock
from filer.errors import DataMissing, InvalidInput
from filer.event_log import EventLog
from filer.stores.store import Store
from mq.base.errors import Conflict, PolicyChanged
from mq.security.policy.document import MOST_BYTES, Policy
from mq.security.policy.policy_object import NOTHING, CorruptPolicy, NewerPolicy, PolicyObject, Stored, tag_of

POLL_SECONDS = 0.4
"""The pause between looks of a broker at the policy. With the round trip, a change is in force within half a second."""

_LAST_RESORT = (
    "If there is neither, delete the object and start the broker: then nothing is granted by it, and no token is "
    "revoked any more, so rotate keys first if any was"
)
REMEDY = (
    f"put back a copy of {keys.POLICY} that is whole, or have a broker that still runs write it anew (mq policy show > "
    f"policy.toml, mq policy apply policy.toml). {_LAST_RESORT}"
)
REMEDY_OF_NEWER = (
    f"start a broker of the version that has written it, or put back a copy of {keys.POLICY} from before. "
    f"{_LAST_RESORT}"
)
_log = EventLog(__name__)


class PolicyInForce:
    """Follows the policy. Calls `on_change` with each new one, and `on_failure` when the store's cannot be used.

    Also calls `on_failure` when a part that is not known here revokes something.

    A policy that cannot be read leaves the one before in force: a damaged object, or a store that does not answer,
    takes no grant and no revocation back. The same holds for an object that is gone after it was there: brokers never
    delete it.
    """

    def __init__(
        self, store: Store, clock: Clock, on_change: Callable[[Policy], None], on_failure: Callable[[], None]
    ) -> None:
        self._object, self._clock = PolicyObject(store, clock), clock
        self._on_change, self._on_failure = on_change, on_failure
        self._stored = NOTHING
        # Reads and writes take turns, so none takes an older policy for the newest.
        self._turn = asyncio.Lock()
        self._told: str | None = None
        self._damaged: CorruptPolicy | None = None

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self._stored.policy

    async def open(self) -> None:
        """Take the policy that is on the store. Raises `CorruptFile`, which says what to do, and `StoreError`.

        A broker that cannot know what is revoked must not serve as if nothing were.
        """
        async with self._turn:
            try:
                found = await self._object.read()
            except CorruptPolicy as error:
                remedy = REMEDY_OF_NEWER if isinstance(error, NewerPolicy) else REMEDY
                raise CorruptPolicy(f"{error}; {remedy}", error.etag) from error
            self._take(found)

    async def watch(self) -> None:
        """Take each new policy, for as long as the broker runs."""
        while True:
            await self._clock.sleep(POLL_SECONDS)
            await self.refresh()

    async def refresh(self) -> None:
        """Take the policy that is on the store now. Logs an error that keeps it from use once for each change."""
        async with self._turn:
            try:
                await self._read_again()
            except Exception as error:
                # Whatever a library raises: the store is asked again, or no revocation would count any more.
                self._has_failed(error)
            else:
                self._told = None

    async def _read_again(self) -> None:
        etag = await self._object.etag()
        if etag == self._stored.etag:
            return
        if etag is None:
            raise DataMissing(f"{keys.POLICY} is gone: the policy before stays in force", key=keys.POLICY)
        if self._damaged is not None and self._damaged.etag == etag:
            raise self._damaged
        try:
            self._take(await self._object.read())
        except CorruptPolicy as error:
            self._damaged = error
            raise

    def _has_failed(self, error: Exception) -> None:
        self._on_failure()
        why = f"{type(error).__name__} {error}"
        if why != self._told:
            self._told = why
            _log.error("policy_unusable", key=keys.POLICY, version_in_force=self.policy.version, error=error)

    def _take(self, stored: Stored) -> None:
        if stored.etag == self._stored.etag:
            return
        self._stored, self._damaged = stored, None
        self._on_change(stored.policy)
        _log.info("policy_in_force", version=stored.policy.version)
        if stored.policy.unknown:
            _log.warning("policy_newer", key=keys.POLICY, not_in_force=", ".join(stored.policy.unknown))
        if stored.policy.not_revoked:
            self._on_failure()
            _log.error("policy_revokes_more", key=keys.POLICY, not_revoked=", ".join(stored.policy.not_revoked))

    async def replace(self, given: Policy, expected: str) -> Policy:
        """Make this the next version of the one with the tag `expected`, and put it in force here.

        Raises `PolicyChanged` if that is not the newest, `Conflict` if that has parts that this broker does not know,
        `InvalidInput` if it is too large, and `StoreError`. Repeated, it finds that it has been done. If the object
        cannot be read, it goes by the policy in force here.
        """
        async with self._turn:
            before, etag = await self._replaceable()
            if before.unknown:
                # That part would be lost: clients of this version, and this broker, send and know only the rest.
                raise Conflict(
                    "policy-newer",
                    f"a newer version has written {', '.join(before.unknown)} in the policy, which this broker does "
                    "not know: change it at a broker of that version",
                )
            made = given.after(before, self._clock.now_us())
            if tag_of(before) != expected:
                is_repeated = expected.startswith(f'"{before.version - 1}-') and made.sections() == before.sections()
                if is_repeated and before.version:
                    return before
                raise PolicyChanged(
                    f"the policy has version {before.version} by now, {tag_of(before)}: read it again, and change that"
                )
            _check_size(made)
            self._take(await self._object.replace(made, etag=etag))
            return made

    async def _replaceable(self) -> tuple[Policy, str | None]:
        """The policy to replace, and its ETag on the store. Raises `Conflict` for that of a newer version."""
        try:
            found = await self._object.read()
        except NewerPolicy as error:
            # All of it would be lost, with its revocations.
            raise Conflict("policy-newer", f"{error}; change it at a broker of that version") from error
        except CorruptPolicy as error:
            return self.policy, error.etag
        if found.etag is None:
            return self.policy, None
        self._take(found)
        return found.policy, found.etag


def _check_size(policy: Policy) -> None:
    size_bytes = len(json.dumps(policy.sections()))
    if size_bytes > MOST_BYTES:
        raise InvalidInput(f"a policy of {size_bytes} bytes is too large: {MOST_BYTES} are the most; use prefixes")
