"""The access of a broker that asks for no tokens."""

from typing import TYPE_CHECKING

from filer.clock import Clock
from mq.security.standing import Standings

if TYPE_CHECKING:
    from mq.security.credentials import Credentials
    from mq.security.policy.in_force import PolicyInForce


class OpenAccess:
    """A broker without `credentials` asks for none. `standings` are the permissions that last.

    If no principal has a name, there is no `policy`.
    """

    def __init__(self, credentials: "Credentials | None", clock: Clock, policy: "PolicyInForce | None" = None) -> None:
        self.credentials, self.policy = credentials, policy
        self.standings = Standings(credentials, clock)

    async def open(self) -> None:
        """Read everything that the first request needs. Raises `InvalidConfig`, `CorruptFile` and `StoreError`."""

    async def issuer_asked(self) -> None:
        """Return at once: there is no issuer."""

    async def watch(self) -> None:
        """Follow changes, for as long as the broker runs."""
