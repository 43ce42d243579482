"""What a request needs: an action on a topic, on a group of it, or on the cluster.

A front finds it without any lookup. So a refusal takes the same time and has the same words whether a topic exists or
not. Names in a body are checked by the code that reads the body (`Principal.require`).
"""

from dataclasses import dataclass
from typing import Literal

from mq.security.grants import Action

Subject = Literal["anybody", "topic", "group", "cluster"]
Effect = Literal["none", "upkeep", "change"]
"""What a request changes: nothing; no message (brokers do the same by themselves); or anything else."""


@dataclass(frozen=True, slots=True)
class Need:
    """An action on a topic, on a group of a topic, or on the cluster, and its effect.

    `anybody` allows it to every principal: the answer depends on the principal.
    """

    action: Action
    subject: Subject
    topic: str = ""
    group: str = ""
    effect: Effect = "change"

    @property
    def resource(self) -> str:
        """The subject of the request, written as in a grant: `topic:orders`, `topic:orders/billing`, `cluster`."""
        if self.subject == "topic":
            return f"topic:{self.topic:.210}"
        if self.subject == "group":
            return f"topic:{self.topic:.210}/{self.group:.210}"
        return self.subject
