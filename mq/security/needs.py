"""What a request needs: an action on a topic, on a group of it, or on the cluster.

A front finds it without looking anything up. So a refusal takes the same time and has the same words whether a topic
exists or not. What a body names besides is checked where it is understood (`Principal.require`).
"""

from dataclasses import dataclass
from typing import Literal

from mq.security.grants import Action

Subject = Literal["anybody", "topic", "group", "cluster"]
Effect = Literal["none", "upkeep", "change"]
"""What a request changes: nothing; no message, since brokers do the same by themselves; or anything else."""


@dataclass(frozen=True, slots=True)
class Need:
    """An action on a topic, on a group of a topic, or on the cluster, and what comes of it.

    On `anybody` every principal may do it: what is answered depends on the principal.
    """

    action: Action
    subject: Subject
    topic: str = ""
    group: str = ""
    effect: Effect = "change"

    @property
    def resource(self) -> str:
        """What it is about, written as the subject of a grant: `topic:orders`, `topic:orders/billing`, `cluster`."""
        if self.subject == "topic":
            return f"topic:{self.topic:.210}"
        if self.subject == "group":
            return f"topic:{self.topic:.210}/{self.group:.210}"
        return self.subject
