"""The Python client of BraidMQ: `Client` for blocking code, `AsyncClient` for asyncio.

Every call starts in `async_client.py`; `client.py` is generated from it. The folders, from the bottom up: `transport`
(HTTP and retries), `cluster` (topics, brokers, routes), then `publish`, `read` and `bulk_load`. `spark` builds on all
of them. Errors are in `errors.py`, brokers' answers in `models.py`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from braidmq.async_client import AsyncClient
    from braidmq.blocking import Messages, Producer, Receipt, Tables
    from braidmq.client import Client
    from braidmq.errors import (
        BodyTooLarge,
        BraidMQError,
        BrokerFailed,
        ClientClosed,
        Conflict,
        ConnectionBroken,
        DataDamaged,
        DataMissing,
        DataUnreadable,
        FileTaken,
        Forbidden,
        FrontStoreFull,
        InvalidArgument,
        InvalidConfig,
        InvalidMarker,
        InvalidName,
        InvalidReference,
        InvalidRequest,
        LoadCommitted,
        LoadNotFound,
        LoadOvertaken,
        LoadRefused,
        NoConnection,
        NotABroker,
        NotFound,
        OutcomeUnknown,
        PayloadMismatch,
        PositionExpired,
        Problem,
        PublishIncomplete,
        Refused,
        SegmentNotFound,
        SequenceExpired,
        TopicExists,
        TopicNotFound,
        Unavailable,
        UploadNotFound,
    )
    from braidmq.json_rows.decoding import rows_from_json
    from braidmq.json_rows.encoding import rows_to_json
    from braidmq.message import Message, Reference
    from braidmq.models import (
        Broker,
        BrokerDrain,
        CheckedObject,
        Cluster,
        CommittedLoad,
        DamagedTopic,
        LoadedSegment,
        LostObject,
        Owner,
        Route,
        RouteEntry,
        Segment,
        SegmentFile,
        SegmentLife,
        SegmentOffset,
        SegmentTraffic,
        SettingDifference,
        Topic,
        TopicPosition,
        TopicSummary,
        UnusableTopic,
        Verification,
    )
    from braidmq.positions import Acknowledgement, Position, PositionRange, Published
    from braidmq.publish.encoding.outgoing import OutgoingMessage, Upload
    from braidmq.publish.producer import AsyncProducer
    from braidmq.publish.receipts import AsyncReceipt
    from braidmq.read.cursors import AsyncMessages, AsyncTables
    from braidmq.read.payload import AsyncPayload
    from braidmq.read.segment_pages import SegmentPage
    from braidmq.transport.retry import Retry
    from braidmq.transport.waits import Waiting

__all__ = [
    "Acknowledgement",
    "AsyncClient",
    "AsyncMessages",
    "AsyncPayload",
    "AsyncProducer",
    "AsyncReceipt",
    "AsyncTables",
    "BodyTooLarge",
    "BraidMQError",
    "Broker",
    "BrokerDrain",
    "BrokerFailed",
    "CheckedObject",
    "Client",
    "ClientClosed",
    "Cluster",
    "CommittedLoad",
    "Conflict",
    "ConnectionBroken",
    "DamagedTopic",
    "DataDamaged",
    "DataMissing",
    "DataUnreadable",
    "FileTaken",
    "Forbidden",
    "FrontStoreFull",
    "InvalidArgument",
    "InvalidConfig",
    "InvalidMarker",
    "InvalidName",
    "InvalidReference",
    "InvalidRequest",
    "LoadCommitted",
    "LoadNotFound",
    "LoadOvertaken",
    "LoadRefused",
    "LoadedSegment",
    "LostObject",
    "Message",
    "Messages",
    "NoConnection",
    "NotABroker",
    "NotFound",
    "OutcomeUnknown",
    "OutgoingMessage",
    "Owner",
    "PayloadMismatch",
    "Position",
    "PositionExpired",
    "PositionRange",
    "Problem",
    "Producer",
    "PublishIncomplete",
    "Published",
    "Receipt",
    "Reference",
    "Refused",
    "Retry",
    "Route",
    "RouteEntry",
    "Segment",
    "SegmentFile",
    "SegmentLife",
    "SegmentNotFound",
    "SegmentOffset",
    "SegmentPage",
    "SegmentTraffic",
    "SequenceExpired",
    "SettingDifference",
    "Tables",
    "Topic",
    "TopicExists",
    "TopicNotFound",
    "TopicPosition",
    "TopicSummary",
    "Unavailable",
    "UnusableTopic",
    "Upload",
    "UploadNotFound",
    "Verification",
    "Waiting",
    "rows_from_json",
    "rows_to_json",
]

_NAMES = {
    "braidmq.async_client": ("AsyncClient",),
    "braidmq.blocking": ("Messages", "Producer", "Receipt", "Tables"),
    "braidmq.client": ("Client",),
    "braidmq.errors": (
        "BodyTooLarge",
        "BraidMQError",
        "BrokerFailed",
        "ClientClosed",
        "Conflict",
        "ConnectionBroken",
        "DataDamaged",
        "DataMissing",
        "DataUnreadable",
        "FileTaken",
        "Forbidden",
        "FrontStoreFull",
        "InvalidArgument",
        "InvalidConfig",
        "InvalidMarker",
        "InvalidName",
        "InvalidReference",
        "InvalidRequest",
        "LoadCommitted",
        "LoadNotFound",
        "LoadOvertaken",
        "LoadRefused",
        "NoConnection",
        "NotABroker",
        "NotFound",
        "OutcomeUnknown",
        "PayloadMismatch",
        "PositionExpired",
        "Problem",
        "PublishIncomplete",
        "Refused",
        "SegmentNotFound",
        "SequenceExpired",
        "TopicExists",
        "TopicNotFound",
        "Unavailable",
        "UploadNotFound",
    ),
    "braidmq.json_rows.decoding": ("rows_from_json",),
    "braidmq.json_rows.encoding": ("rows_to_json",),
    "braidmq.message": ("Message", "Reference"),
    "braidmq.models": (
        "Broker",
        "BrokerDrain",
        "CheckedObject",
        "Cluster",
        "CommittedLoad",
        "DamagedTopic",
        "LoadedSegment",
        "LostObject",
        "Owner",
        "Route",
        "RouteEntry",
        "Segment",
        "SegmentFile",
        "SegmentLife",
        "SegmentOffset",
        "SegmentTraffic",
        "SettingDifference",
        "Topic",
        "TopicPosition",
        "TopicSummary",
        "UnusableTopic",
        "Verification",
    ),
    "braidmq.positions": ("Acknowledgement", "Position", "PositionRange", "Published"),
    "braidmq.publish.encoding.outgoing": ("OutgoingMessage", "Upload"),
    "braidmq.publish.producer": ("AsyncProducer",),
    "braidmq.publish.receipts": ("AsyncReceipt",),
    "braidmq.read.cursors": ("AsyncMessages", "AsyncTables"),
    "braidmq.read.payload": ("AsyncPayload",),
    "braidmq.read.segment_pages": ("SegmentPage",),
    "braidmq.transport.retry": ("Retry",),
    "braidmq.transport.waits": ("Waiting",),
}
"""Where each name is. A module is imported when one of its names is used: much of the client needs no Arrow."""
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}
_MODULES = {module.split(".")[1] for module in _NAMES}


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        found = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
        return found
    if name in _MODULES:
        return import_module(f"braidmq.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
