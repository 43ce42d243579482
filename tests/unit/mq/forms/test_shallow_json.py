"""Long JSON objects, parsed a step at a time."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filer.errors import InvalidInput
from mq.base.errors import Malformed
from mq.forms.group_bodies import AckBody, HeartbeatBody
from mq.forms.json_form import body_in_steps
from mq.forms.shallow_json import MOST_ENTRY_BYTES, WHOLE_BYTES, object_in_steps
from mq.limits.steps import STEP_ROWS, at_once

MOST = 10_000
EXAMPLE = AckBody.EXAMPLE
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=20) | st.just('"},]\\{[')
ENTRIES = st.lists(SCALARS | st.dictionaries(st.text(max_size=5), SCALARS, max_size=3), max_size=5)
DOCUMENTS = st.dictionaries(st.text(max_size=5), SCALARS | ENTRIES, max_size=4)


def parsed(body: bytes, most: int = MOST) -> dict[str, Any]:
    return at_once(object_in_steps(body, EXAMPLE, most))


@given(DOCUMENTS, st.sampled_from([None, orjson.OPT_INDENT_2]))
def test_it_is_what_parsing_at_once_gives(document: dict[str, Any], option: int | None) -> None:
    long = [{"claim": "x" * 100, "id": f"0-{number}"} for number in range(WHOLE_BYTES // 100)]
    body = orjson.dumps({**document, "messages": long}, option=option)
    assert parsed(body) == orjson.loads(body)


def test_each_step_is_short() -> None:
    entries = 9_000
    body = b'{"messages":[%b]}' % b",".join(b'{"claim":"AAAA"}' for _ in range(entries))
    assert sum(1 for _ in object_in_steps(body, EXAMPLE, MOST)) >= entries // STEP_ROWS


def test_4_mb_of_empty_objects_are_refused_after_as_many_as_there_may_be() -> None:
    """Parsed at once they held up everybody for 0.1 s, and took 100 MB."""
    body = b'{"messages":[' + b"{}," * 1_390_000 + b"{}]}"
    steps = object_in_steps(body, EXAMPLE, MOST)
    count = 0
    with pytest.raises(InvalidInput, match="at most 10000 entries"):
        while True:
            next(steps)
            count += 1
    assert count <= MOST // STEP_ROWS


FILL = b'"x"' + b',"x"' * (WHOLE_BYTES // 4)


@pytest.mark.parametrize(
    ("body", "kind", "why"),
    [
        (b'{"a":[[],' + FILL + b"]}", InvalidInput, "plain values and objects"),
        (b'{"a":[{"b":{}},' + FILL + b"]}", InvalidInput, "plain values and objects"),
        (b'{"a":{},"b":[' + FILL + b"]}", InvalidInput, "plain values and objects"),
        (b'{"a":["' + b"x" * MOST_ENTRY_BYTES + b'",' + FILL + b"]}", InvalidInput, "at most 8192 bytes"),
        (b'{"a":"' + b"x" * WHOLE_BYTES + b'"}', InvalidInput, "plain values and objects"),
        (b'{"a":[1,' + FILL + b'],"b":"' + b"x" * WHOLE_BYTES + b'"}', InvalidInput, "plain values and objects"),
        (b"[" + FILL + b"]", InvalidInput, "plain values and objects"),
        (b'{"a":[' + FILL, InvalidInput, "plain values and objects"),
        (b'{"a":[' + FILL + b"]} x", Malformed, "something behind"),
        (b'{"a":[1 2,' + FILL + b"]}", Malformed, "not valid JSON"),
        (b'{"a":[{"b"},' + FILL + b"]}", Malformed, "not valid JSON"),
        (b'{"a":[,' + FILL + b"]}", InvalidInput, "plain values and objects"),
        (b'{"a":[1,' + FILL + b'],"a":[2]}', Malformed, "the name 'a' twice"),
        (b'{"a" [1,' + FILL + b"]}", Malformed, "not valid JSON"),
    ],
    ids=lambda given: str(given)[:24] if isinstance(given, bytes) else "",
)
def test_what_is_no_shallow_object_is_refused(body: bytes, kind: type[Exception], why: str) -> None:
    with pytest.raises(kind, match=why):
        parsed(body, 10**6)


def test_the_entry_that_is_wrong_is_told_by_its_place() -> None:
    entries = [b'{"claim":"A"}'] * 700
    entries[600] = b'{"clam":"A"}'
    with pytest.raises(InvalidInput, match=r"messages\.600\.clam"):
        at_once(body_in_steps(b'{"messages":[%b]}' % b",".join(entries), AckBody, MOST))


def test_each_of_two_long_lists_is_checked() -> None:
    held = [{"segment": number, "epoch": 1} for number in range(3_000)]
    document = {"member_id": "m", "member_epoch": 1, "segments": held, "released": held[::-1]}
    found = at_once(body_in_steps(orjson.dumps(document), HeartbeatBody, MOST))
    assert [each.segment for each in found.segments] == [*range(3_000)]
    assert [each.segment for each in found.released] == [*range(2_999, -1, -1)]
    document["released"] = [*held, {"segment": -1, "epoch": 1}]
    with pytest.raises(InvalidInput, match=r"released\.3000\.segment"):
        at_once(body_in_steps(orjson.dumps(document), HeartbeatBody, MOST))
