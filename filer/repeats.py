"""Telling what of a request is stored already, row by row where its segment knows it in some of its slots only."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filer.errors import SequenceExpired
from filer.producer_windows import WINDOW_SEQUENCES, Found, ProducerWindows
from filer.requests import Position, RequestId
from filer.slots import slot_of, slots_of

if TYPE_CHECKING:
    from filer.next_file import Payload


def sift(windows: ProducerWindows, request: RequestId, payload: "Payload") -> "tuple[list[Position], Payload | None]":
    """Where a request's messages are stored already, and those that are not (None: there are none).

    Raises `SequenceExpired` where it cannot be told of one of them.
    """
    parts = windows.look_up(request)
    if len(parts) > 1 and len({(part.position, part.expired) for part in parts}) > 1:
        return _sift_by_slot(parts, request, payload)
    if parts[0].expired:
        raise _expired(request)
    known = parts[0].position
    return ([], payload) if known is None else ([known], None)


def _sift_by_slot(
    parts: Sequence[Found], request: RequestId, payload: "Payload"
) -> "tuple[list[Position], Payload | None]":
    starts = np.array([part.start for part in parts])
    places = np.searchsorted(starts, _slots(payload, request), side="right") - 1
    touched = [parts[place] for place in np.unique(places)]
    if any(part.expired for part in touched):
        raise _expired(request)
    known = sorted({part.position for part in touched if part.position is not None})
    is_new = np.array([part.position is None for part in parts])[places]
    if is_new.all():
        return [], payload
    return known, _chosen(payload, is_new) if is_new.any() else None


def _slots(payload: "Payload", request: RequestId) -> npt.NDArray[np.uint16]:
    if isinstance(payload, pa.RecordBatch):
        return slots_of(payload["key"], null_slot=request.null_slot)
    slot = request.null_slot if payload.key is None else slot_of(payload.key)
    return np.array([slot], dtype=np.uint16)


def _chosen(payload: "Payload", chosen: npt.NDArray[np.bool_]) -> "Payload":
    return payload.filter(pa.array(chosen)) if isinstance(payload, pa.RecordBatch) else payload


def _expired(request: RequestId) -> SequenceExpired:
    return SequenceExpired(
        f"sequence {request.sequence} of producer {request.producer!r} is older than its last {WINDOW_SEQUENCES} for "
        "these keys: whether it was stored cannot be told any more, so it is not stored now"
    )
