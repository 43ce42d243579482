"""Shares of the store's connections between payloads that are sent on while they come."""

import contextlib

import pytest

from mq.base.errors import TooManyUploads
from mq.limits.upload_streams import UploadStreams


def test_nobody_has_more_than_a_share_and_all_together_no_more_than_there_are() -> None:
    streams = UploadStreams(10)
    assert streams.share == 2
    with contextlib.ExitStack() as under_way:
        for name in ("ann", "ann", "bob", "bob", "cid", "cid", "dan", "dan", "eve"):
            under_way.enter_context(streams.counted(name))
        with pytest.raises(TooManyUploads, match="2 payloads of this principal"), streams.counted("ann"):
            pass
        with streams.counted("eve"), pytest.raises(TooManyUploads, match="10 payloads are"), streams.counted("fay"):
            pass
        with streams.counted("fay"):
            assert streams.count == 10
    assert streams.count == 0
    with streams.counted("ann"):
        assert streams.count == 1


def test_a_store_without_a_bound_has_none() -> None:
    streams = UploadStreams(None)
    with contextlib.ExitStack() as under_way:
        for _ in range(1000):
            under_way.enter_context(streams.counted("ann"))
        assert streams.count == 1000
