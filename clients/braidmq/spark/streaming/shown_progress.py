"""The progress of a query, shown as the position of a consumer group: so its lag stands beside that of others."""

import logging

from braidmq.blocking_groups import Group
from braidmq.errors import BraidMQError
from filer.topic.positions import Positions, to_marker

_log = logging.getLogger(__name__)


class ShownProgress:
    """A stream group without members that a query moves.

    Nothing is read from it: only the query's checkpoint says where the query goes on. So the group may be behind, if
    the query stopped before it was moved or no broker answered, and that loses no message and reads none twice.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._is_made = False
        self._positions: Positions | None = None

    def move_to(self, topic: str, positions: Positions) -> None:
        """Show these positions, once. A failure is logged: it must not end the query."""
        if positions == self._positions:
            return
        self._positions = dict(positions)
        try:
            if not self._is_made:
                self._group.create(mode="stream")
                self._is_made = True
            # Without force: a group with workers of its own is theirs.
            self._group.reset(marker=to_marker(topic, positions))
        except BraidMQError as error:
            self._is_made = False  # it may have been deleted
            _log.warning("topic %s: group %s does not show how far the query is: %s", topic, self._group.name, error)
