"""Long bodies of JSON are decoded in steps, none of which is long."""

import pyarrow as pa
import pytest

from filer.format.schema import MessageSchema
from mq.bodies import json_body
from mq.bodies.json_body import decode_ndjson
from mq.limits.steps import at_once

MOST_JOINED = 100


def test_no_step_joins_all_that_was_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[int] = []
    join = json_body._joined

    def noted(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        joined.append(len(batches))
        return join(batches)

    monkeypatch.setattr(json_body, "_joined", noted)
    rows = 60_000
    body = b"".join(b'{"value":%d}\n' % number for number in range(rows))
    batch = at_once(decode_ndjson(body, MessageSchema.of())).batch
    assert batch["value"].to_pylist() == [b"%d" % number for number in range(rows)]
    assert len(joined) > 1 and max(joined) <= MOST_JOINED
