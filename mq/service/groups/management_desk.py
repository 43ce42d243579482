"""Creates, configures, describes, lists, resets and deletes the groups that this broker coordinates."""

from collections.abc import Mapping
from typing import Any

from filer.errors import InvalidConfig, InvalidInput
from filer.topic.positions import Positions
from groups.settings import FIXED_SETTINGS, parse_settings
from mq.broker import Broker
from mq.forms.group_bodies import ResetBody
from mq.groups.segment_groups import SegmentGroups
from mq.limits.read_budget import ReadLease
from mq.service.groups.answers import Document, Names
from mq.service.groups.finding import (
    check_dead_letter,
    defaults_of,
    existing_group,
    first_positions,
    found_group,
    maker_for,
)
from mq.service.groups.group_document import document_of
from mq.service.groups.handlers import Handler
from mq.service.groups.operations import DELETE, DESCRIBE, LIST, PUT, RESET, Asked, Operation, Settings
from mq.service.start import moment_of, start_positions

FROM = "from"


class ManagementDesk:
    """Manages groups that this broker coordinates."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.handlers: Mapping[Operation[Any, Any], Handler] = {
            PUT: self._put,
            DESCRIBE: self._describe,
            DELETE: self._delete,
            LIST: self._list,
            RESET: self._reset,
        }

    async def _put(self, groups: SegmentGroups, request: Asked[Settings], lease: ReadLease) -> Document:
        given = dict(request.body)
        begin = _begin(given.pop(FROM, None))
        group = await found_group(groups, request)
        created = False
        if group is None:
            settings = parse_settings(given, await defaults_of(self._broker, request.topic))
            await check_dead_letter(self._broker, request.topic, settings)
            group, created = await groups.create(
                request.topic,
                request.group,
                settings,
                lambda: first_positions(self._broker, request.topic, begin),
                maker_for(self._broker, request, by_claim=False),
            )
        if not created:
            known = group.progress.settings
            settings = parse_settings(given, known)
            await check_dead_letter(self._broker, request.topic, settings, known)
            for name in FIXED_SETTINGS:
                if getattr(settings, name) != (stays := getattr(known, name)):
                    raise InvalidConfig(f"{name} of group {request.group!r} is {stays!r} and stays so")
            if settings != known:
                await group.configure(settings)
        document = await document_of(self._broker, group)
        # A group does not remember where it began, only how far it has come.
        differs = {} if created or begin is None else {FROM: {"wanted": begin, "actual": None}}
        return Document.of(document | {"created": created, "differs": differs}, is_new=created)

    async def _describe(self, groups: SegmentGroups, request: Asked[None], lease: ReadLease) -> Document:
        return Document.of(await document_of(self._broker, await existing_group(self._broker, groups, request)))

    async def _delete(self, groups: SegmentGroups, request: Asked[None], lease: ReadLease) -> None:
        await groups.delete(request.topic, request.group)

    async def _list(self, groups: SegmentGroups, request: Asked[None], lease: ReadLease) -> Names:
        """The groups of a topic that this broker coordinates, as far as their keys lie in one segment."""
        return [
            (name, progress.settings.mode)
            for name, progress in groups.of_topic(request.topic)
            if not await self._broker.groups.source(request.topic, progress).is_over()
        ]

    async def _reset(self, groups: SegmentGroups, request: Asked[ResetBody], lease: ReadLease) -> Document:
        asked = request.body
        if (asked.to is None) == (asked.marker is None):
            raise InvalidInput("give either to (earliest, latest or an RFC 3339 time) or marker")
        source = (await existing_group(self._broker, groups, request)).source

        async def positions() -> Positions:
            reader = await source.reader()
            return await start_positions(request.topic, reader, asked.marker, asked.to, default="earliest", field="to")

        group = await groups.reset(request.topic, request.group, positions, force=asked.force)
        return Document.of(await document_of(self._broker, group))


def _begin(given: Any) -> str | None:
    """Where a group is to begin, even if the group exists already. Raises `InvalidConfig` and `InvalidInput`."""
    if given is None:
        return None
    if not isinstance(given, str):
        raise InvalidConfig(f"{FROM} is earliest, latest or an RFC 3339 time, not {given!r:.60}")
    if given not in ("earliest", "latest"):
        moment_of(given)
    return given
