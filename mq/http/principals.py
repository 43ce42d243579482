"""The principal of a request, for endpoints whose answer depends on it. The dispatcher has found it."""

from starlette.requests import Request

from filer.clock import Clock
from mq.base.errors import Conflict, Forbidden, NotFound
from mq.broker import Broker
from mq.security.grants import Action
from mq.security.principal import Principal

PRINCIPAL = "braidmq.principal"
"""The key in a request's scope."""


def principal_of(request: Request) -> Principal:
    """The principal of a request that was admitted. Raises `KeyError` for any other: so none is trusted by mistake."""
    principal: Principal = request.scope[PRINCIPAL]
    return principal


def presigned_seconds(request: Request, clock: Clock, most_seconds: int) -> int:
    """How long an address for the request's principal may be good: no longer than its credential."""
    left_seconds = principal_of(request).until_seconds - clock.now_us() / 1e6
    return int(max(1, min(most_seconds, left_seconds)))


async def check_members(broker: Broker, principal: Principal, group: str, action: Action) -> None:
    """Raise `Forbidden` unless the principal may do that to all topics of a topic group. Other topics have none.

    The words name none of the topics: the principal may have no right to know them. Raises the error that keeps the
    group's record from being read: the topics of an unreadable group are not known.
    """
    if principal.grants.allow_everywhere(action):
        return
    try:
        grouping = (await broker.topic_groups.group(group)).state.group
    except (NotFound, Conflict):
        return  # a topic that is no group, or none at all
    if grouping is not None and not all(principal.grants.allow(action, topic) for topic in grouping.topics):
        raise Forbidden(f"{principal.name!r:.100} may not {action} every topic of topic group {group!r:.210}")
