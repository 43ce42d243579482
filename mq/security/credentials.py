"""Makes a principal of a request's credential, and remembers it: a token is verified once, not with each request.

A request without a token may be known by the certificate of its connection, which TLS has verified.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from filer.clock import Clock
from mq.base.errors import Unauthenticated
from mq.security import signed_tokens
from mq.security.authorization import SEND_TOKEN
from mq.security.caller import Credential, ShownCertificate
from mq.security.grants import NO_GRANTS
from mq.security.key_ring import KeyRing
from mq.security.own_names import CERTIFICATE
from mq.security.policy.document import Decisions
from mq.security.principal import Principal, owner_digest
from mq.security.signed_tokens import Audience, UnknownKey
from mq.security.static_tokens import StaticTokens

MOST_REMEMBERED = 2048
"""So many tokens are remembered: 16 MiB, whatever clients send. Only good tokens are remembered."""
_BEARER = b"bearer "


@dataclass(frozen=True, slots=True)
class Known:
    """The keys, hashes and policy that tokens are checked with. They are replaced as a whole."""

    keys: KeyRing = field(default_factory=KeyRing)
    static: StaticTokens = field(default_factory=StaticTokens)
    policy: Decisions = field(default_factory=Decisions)


class Credentials:
    """Checks the tokens of requests. Belongs to one event loop."""

    def __init__(
        self,
        clock: Clock,
        audience: Audience,
        *,
        on_unknown_key: Callable[[], None] | None = None,
        takes_certificates: bool = False,
    ) -> None:
        self._clock, self._audience, self._on_unknown_key = clock, audience, on_unknown_key
        self.takes_certificates = takes_certificates
        self._known = Known()
        self._remembered: OrderedDict[Credential, Principal] = OrderedDict()

    def __len__(self) -> int:
        """The number of tokens that are remembered."""
        return len(self._remembered)

    def use(self, known: Known) -> None:
        """Check by these keys and hashes from now on. Forgets all that was checked by others."""
        self._known = known
        self._remembered.clear()

    @property
    def known(self) -> Known:
        """The keys, hashes and policy that tokens are checked with."""
        return self._known

    def principal(self, credential: Credential) -> Principal:
        """The principal of the value of an `Authorization` header, or of a certificate. Raises `Unauthenticated`."""
        remembered = self._remembered.get(credential)
        if remembered is not None and self._clock.now_us() < remembered.until_seconds * 1e6:
            return remembered
        found = self._bearer(credential) if isinstance(credential, bytes) else self._owner(credential)
        principal = self._known.policy.applied(found)
        principal = replace(principal, owner=owner_digest(principal.name))
        if len(self._remembered) >= MOST_REMEMBERED:
            self._remembered.popitem(last=False)
        self._remembered[credential] = principal
        return principal

    def _owner(self, certificate: ShownCertificate) -> Principal:
        """The principal of a certificate. Only the policy grants it anything."""
        if self._clock.now_us() >= certificate.until_seconds * 1e6:
            raise Unauthenticated("the certificate of this connection has expired: connect with a new one")
        return Principal(f"{CERTIFICATE}{certificate.name}", NO_GRANTS, certificate.until_seconds)

    def _bearer(self, authorization: bytes) -> Principal:
        if len(authorization) > signed_tokens.MOST_BYTES + len(_BEARER):
            raise Unauthenticated(f"the header Authorization has {len(authorization)} bytes: a token has at most 8192")
        if authorization[: len(_BEARER)].lower() != _BEARER:
            raise Unauthenticated("the header Authorization has no bearer token", SEND_TOKEN)
        return self._verified(authorization[len(_BEARER) :].strip(b" ").decode("latin-1"))

    def _verified(self, token: str) -> Principal:
        now_seconds = self._clock.now_us() / 1e6
        if "." not in token:
            found = self._known.static.find(token, now_seconds)
            if found is None:
                raise Unauthenticated("the token is not known here, or has ended")
            return found
        try:
            return signed_tokens.verify(token, self._known.keys, self._audience, now_seconds)
        except UnknownKey:
            if self._on_unknown_key is not None:
                self._on_unknown_key()
            raise
