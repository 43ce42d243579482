"""`cluster/policy.json`: the policy on the store. It changes only by compare-and-swap."""

import asyncio
from dataclasses import dataclass

import orjson

from filer import keys
from filer.clock import Clock
from filer.errors import CorruptFile, EtagMismatch, InvalidInput, ObjectExists, ObjectNotFound, OutcomeUnknown
from filer.stores.store import Store
from filer.topic.record_check import checked, digest_of, with_check
from mq.base.errors import PolicyChanged
from mq.security.policy.document import MOST_BYTES, Policy, parse_stored_policy

FORMAT = 1
TRIES, PAUSE_SECONDS = 5, 0.2
_MOST_STORED_BYTES = 2 * MOST_BYTES


@dataclass(frozen=True, slots=True)
class Stored:
    """A policy on the store, and its ETag there; None if there is none."""

    policy: Policy
    etag: str | None


NOTHING = Stored(Policy(), None)


class PolicyObject:
    """Reads and replaces the policy on one store."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock

    async def etag(self) -> str | None:
        """The ETag that it has now; None if there is none. Raises `StoreError`."""
        try:
            return (await self._store.head(keys.POLICY)).etag
        except ObjectNotFound:
            return None

    async def read(self) -> Stored:
        """The policy that is there. Raises `CorruptPolicy`, or `NewerPolicy` if it is whole, and `StoreError`."""
        try:
            fetched = await self._store.get(keys.POLICY, stop=_MOST_STORED_BYTES + 1)
        except ObjectNotFound:
            return NOTHING
        try:
            # For the largest policy, this takes as long as some hundred requests.
            return Stored(await asyncio.to_thread(_parsed, fetched.data), fetched.info.etag)
        except _NewerFormat as error:
            raise NewerPolicy(str(error), fetched.info.etag) from error
        except CorruptFile as error:
            raise CorruptPolicy(str(error), fetched.info.etag) from error

    async def replace(self, policy: Policy, *, etag: str | None) -> Stored:
        """Put a policy in place of the object with that ETag. Raises `PolicyChanged` if there is another one by now.

        Stopped before the swap takes effect, nothing has happened. Stopped after it, before the client has an answer,
        the policy is in force: all brokers find it within a second, and this one at its next start. The client asks
        again, and finds its own policy there, or gets an error about a newer version: it is never applied twice. Raises
        `OutcomeUnknown` if the store does not report the outcome.
        """
        data = await asyncio.to_thread(_bytes_of, policy)
        for _ in range(TRIES):
            try:
                if etag is None:
                    await self._store.create(keys.POLICY, data)
                    # Its ETag is read with its bytes: another broker may have replaced it by now.
                    raise ObjectExists(keys.POLICY)
                return Stored(policy, await self._store.replace(keys.POLICY, data, etag=etag))
            except (EtagMismatch, ObjectExists):
                # Perhaps an earlier try of this very write has taken effect, and its answer was lost.
                if (written := await self._etag_of(data)) is None:
                    raise PolicyChanged("the policy has been changed meanwhile: read it again") from None
                return Stored(policy, written)
            except OutcomeUnknown:
                await self._clock.sleep(PAUSE_SECONDS)
        raise OutcomeUnknown(f"{keys.POLICY} could not be written, or it was and nobody knows: read it again")

    async def _etag_of(self, data: bytes) -> str | None:
        """The ETag of the object, if it has these bytes."""
        try:
            fetched = await self._store.get(keys.POLICY)
        except ObjectNotFound:
            return None
        return fetched.info.etag if fetched.data == data else None


class CorruptPolicy(CorruptFile):
    """The policy on the store cannot be read. Its `etag` allows to replace it."""

    def __init__(self, message: str, etag: str) -> None:
        super().__init__(message, key=keys.POLICY)
        self.etag = etag


class NewerPolicy(CorruptPolicy):
    """The policy is whole, in a format of a newer version: only a broker of that version may replace it."""


class _NewerFormat(CorruptFile):
    """The policy has a format of a newer version."""


def tag_of(policy: Policy) -> str:
    """The ETag of a policy over HTTP. It depends on the content, so it is the same at each broker."""
    return f'"{policy.version}-{digest_of(policy.sections())[:16]}"'


def _bytes_of(policy: Policy) -> bytes:
    document = {"format": FORMAT, "version": policy.version, **policy.sections()}
    return with_check(orjson.dumps(document, option=orjson.OPT_INDENT_2))


def _parsed(data: bytes) -> Policy:
    """Raises `CorruptFile`."""
    if len(data) > _MOST_STORED_BYTES:
        raise CorruptFile(f"{keys.POLICY} is larger than {_MOST_STORED_BYTES} bytes", key=keys.POLICY)
    content, _ = checked(data, key=keys.POLICY, first="format")
    form, version = content.pop("format", None), content.pop("version", None)
    if type(form) is int and form > FORMAT:
        raise _NewerFormat(
            f"{keys.POLICY} has format {form}, of a newer version: this version knows {FORMAT}", key=keys.POLICY
        )
    if form != FORMAT:
        raise CorruptFile(f"{keys.POLICY} has format {form!r:.40}: this version knows {FORMAT}", key=keys.POLICY)
    if not isinstance(version, int) or version < 1:
        raise CorruptFile(f"{keys.POLICY} has no version", key=keys.POLICY)
    try:
        return parse_stored_policy(content, version)
    except InvalidInput as error:
        raise CorruptFile(f"{keys.POLICY} cannot be used: {error}", key=keys.POLICY) from error
