"""What serves an operation at the coordinator of its group."""

from collections.abc import Callable, Coroutine
from typing import Any

from mq.groups.segment_groups import SegmentGroups
from mq.limits.read_budget import ReadLease
from mq.service.groups.operations import Asked

Handler = Callable[[SegmentGroups, Asked[Any], ReadLease], Coroutine[Any, Any, Any]]
"""Does the requested work on one of those groups. The lease holds the memory of the answer."""
