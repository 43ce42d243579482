"""The principal of a request, and its rights."""

from base64 import urlsafe_b64encode
from contextvars import ContextVar
from dataclasses import dataclass, field
from hashlib import blake2b
from math import inf

from mq.base.errors import Forbidden
from mq.security.grants import EVERYTHING, Action, Grants
from mq.security.needs import Need


@dataclass(frozen=True, slots=True)
class Principal:
    """A user or a program. Its credential ends at `until_seconds` (Unix time), and is revoked by its `token_id`.

    `issued_seconds`: when the credential was issued, if it says so. `owner` stands for the principal where ids of
    producers are remembered; empty if it is trusted without a credential.
    """

    name: str
    grants: Grants
    until_seconds: float = inf
    token_id: str | None = None
    issued_seconds: float | None = None
    owner: str = field(default="", compare=False)

    def refusal(self, need: Need) -> Forbidden | None:
        """Why a request is not allowed. The words name only what the request itself has named."""
        if need.subject == "anybody":
            return None
        if need.subject == "cluster":
            if self.grants.allow_on_cluster(need.action):
                return None
            return self._forbidden(need.action, "the cluster", f"cluster:{need.action}")
        return self.why_not(need.action, need.topic, need.group or None)

    def why_not(self, action: Action, topic: str, group: str | None = None) -> Forbidden | None:
        """Why an action on a topic, or on a group of it, is not allowed; None if it is."""
        if self.grants.allow(action, topic, group):
            return None
        if group is None:
            return self._forbidden(action, f"topic {topic!r:.210}", f"topic:{topic:.210}:{action}")
        of_group = f"group {group!r:.210} of topic {topic!r:.210}"
        return self._forbidden(action, of_group, f"topic:{topic:.210}/{group:.210}:{action}")

    def require(self, action: Action, topic: str, group: str | None = None) -> None:
        """Raise `Forbidden` unless an action on a topic, or on a group of it, is allowed."""
        if (refusal := self.why_not(action, topic, group)) is not None:
            raise refusal

    def sees(self, topic: str) -> bool:
        """Whether lists show the topic."""
        return self.grants.allow("observe", topic)

    def _forbidden(self, action: Action, subject: str, grant: str) -> Forbidden:
        return Forbidden(f"{self.name!r:.100} may not {action} {subject}: that takes the grant {grant}")


def owner_digest(name: str) -> str:
    """The stand-in for the principal of that name in files, whose readers must not see the name.

    16 characters of URLs: it is not feasible to find another name with the same digest.
    """
    return urlsafe_b64encode(blake2b(name.encode(), digest_size=12, person=b"producers").digest()).decode()


ACTING: ContextVar[str] = ContextVar("principal", default="")
"""The name of the principal for whom work is done; "" if it has no name."""
TRUSTED = Principal("anybody", EVERYTHING)
"""Any client of a broker that asks for no credentials."""
