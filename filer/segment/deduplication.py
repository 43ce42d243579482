"""Finds the messages of a request that are stored already, row by row if that differs between slots."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filer.errors import ProducerTaken, SequenceExpired
from filer.format.requests import Position, RequestId
from filer.format.slot_columns import slots_of
from filer.segment.cut_rows import CutRows
from filer.segment.producer_owners import differ
from filer.segment.producer_windows import ProducerWindows
from filer.segment.sequence_window import WINDOW_SEQUENCES, Found
from filer.slots import slot_of

if TYPE_CHECKING:
    from filer.segment.next_file import Payload, Single


def check_owner(request: RequestId, owner: str) -> None:
    """Raise `ProducerTaken` if that owner has the producer, and another one has the request.

    The error names neither the owner, nor what it has sent.
    """
    if differ(owner, request.owner):
        raise ProducerTaken(
            f"producer {request.producer!r} belongs to another principal, which used this id of this topic before, "
            "within the last hour: choose another id"
        )


def deduplicate(
    windows: ProducerWindows, request: RequestId, payload: "Payload"
) -> "tuple[list[Position], Payload | None]":
    """The positions of the messages that are stored already, and the messages that are not stored (None if all are).

    Raises `SequenceExpired` if the windows no longer show whether one of them is stored.
    """
    ranges = windows.look_up(request)
    if len(ranges) > 1 and len({(found.position, found.expired) for found in ranges}) > 1:
        return _deduplicate_by_slot(ranges, request, payload)
    if ranges[0].expired:
        raise _expired(request)
    known = ranges[0].position
    return ([], payload) if known is None else ([known], None)


def _deduplicate_by_slot(
    ranges: Sequence[Found], request: RequestId, payload: "Payload"
) -> "tuple[list[Position], Payload | None]":
    if isinstance(payload, CutRows):
        payload = payload.batch()
    starts = np.array([found.start for found in ranges])
    range_of_row = np.searchsorted(starts, _slots(payload, request), side="right") - 1
    touched = [ranges[index] for index in np.unique(range_of_row)]
    if any(found.expired for found in touched):
        raise _expired(request)
    known = sorted({found.position for found in touched if found.position is not None})
    is_new = np.array([found.position is None for found in ranges])[range_of_row]
    if is_new.all():
        return [], payload
    return known, _filtered(payload, is_new) if is_new.any() else None


def _slots(payload: "pa.RecordBatch | Single", request: RequestId) -> npt.NDArray[np.uint16]:
    if isinstance(payload, pa.RecordBatch):
        return slots_of(payload["key"], null_slot=request.null_slot)
    slot = request.null_slot if payload.key is None else slot_of(payload.key)
    return np.array([slot], dtype=np.uint16)


def _filtered(payload: "pa.RecordBatch | Single", wanted: npt.NDArray[np.bool_]) -> "pa.RecordBatch | Single":
    return payload.filter(pa.array(wanted)) if isinstance(payload, pa.RecordBatch) else payload


def _expired(request: RequestId) -> SequenceExpired:
    return SequenceExpired(
        f"sequence {request.sequence} of producer {request.producer!r} is not among its last ones that are remembered "
        f"for these keys ({WINDOW_SEQUENCES}, fewer where there are very many producers): it is unknown whether it was "
        "stored, so it is not stored now; a new producer chooses another id"
    )
