"""Gaps that readers are told of: what is excused by them, and what is not."""

import orjson
import pytest

from tests.cluster.checker.gaps import HEALING_SECONDS, false_alarms, gap_in
from tests.cluster.checker.history import REACHED, Attempt, Fault, Found, Gap, History, Reader, Request, Sent, Visit
from tests.cluster.checker.verdict import judge

B0, KEY = "http://b0", "topics/t/segments/segment=0/00000000000000000001.parquet"
MISSING = {"type": "urn:braidmq:data-missing", "key": KEY, "segment": 0, "offset": 1, "next_offset": 2}
GAP = Gap(KEY, 0, 1, 2)


def test_what_an_answer_tells() -> None:
    assert gap_in(orjson.dumps(MISSING)) == GAP
    assert gap_in(orjson.dumps({**MISSING, "type": "urn:braidmq:data-damaged", "next_offset": None})) == Gap(KEY, 0, 1)
    assert gap_in(orjson.dumps({"type": "urn:braidmq:data-damaged", "key": "topics/t/topic.json"})) is not None


@pytest.mark.parametrize(
    "problem",
    [b"", b"null", b"[]", b'{"type": "urn:braidmq:owner-silent", "key": "k"}', b'{"type": "urn:braidmq:data-missing"}'],
)
def test_an_answer_that_names_no_object_tells_nothing(problem: bytes) -> None:
    assert gap_in(problem) is None


def history(*found: int, told: tuple[Gap, ...] = (GAP,), fault: str = KEY) -> History:
    """Three messages in single requests; a reader is given some of them, as everybody is in the end."""
    requests = [
        Request("p", "t", (Sent("k", n),), [Attempt(B0, n, n + 0.5, "acknowledged", ((0, n, 1),))]) for n in range(3)
    ]
    messages = [Found(0, n, b"k", b"k %d" % n, 5.0) for n in found]
    readers = [
        Reader(
            kind,
            "t",
            kind,
            joined_seconds=0.0,
            visits=[Visit(B0, 0, 5, 6, messages, REACHED, list(told))],
            finished=True,
        )  # type: ignore[arg-type]
        for kind in ("browse", "final")
    ]
    return History(requests=requests, readers=readers, faults=[Fault("delete", 4.0, None, key=fault)])


def words(complaints: list[str]) -> set[str]:
    return {part for complaint in complaints for part in complaint.split(": ")}


def test_what_is_told_is_not_lost() -> None:
    assert judge(history(0, 2)) == []


def test_what_is_not_told_is() -> None:
    assert {"lost", "gap", "skipped", "not seen"} <= words(judge(history(0, 2, told=())))


def test_a_gap_excuses_nothing_beside_it() -> None:
    assert {"lost", "skipped"} <= words(judge(history(0, 2, told=(Gap(KEY, 0, 2, 3),))))
    assert {"lost", "skipped"} <= words(judge(history(0, 2, told=(Gap(KEY, 1, 1, 2),))))
    assert {"lost", "not seen"} <= words(judge(history(0)))


def test_a_gap_of_unknown_length_excuses_all_behind_it() -> None:
    assert judge(history(0, told=(Gap(KEY, 0, 1),))) == []


def test_nobody_is_told_of_an_object_that_was_not_touched() -> None:
    complaints = judge(history(0, 1, 2, fault="another"))
    assert complaints and words(complaints) & {"false alarm"}
    assert judge(history(0, 1, 2)) == []


def test_an_object_that_is_back_may_be_told_of_for_a_while_only() -> None:
    readers = [Reader("r", "t", "browse", visits=[Visit(B0, 0, 50.0, 51.0, told=[GAP])])]
    assert list(false_alarms(readers, [Fault("delete", 1.0, 50.0 - HEALING_SECONDS, key=KEY)])) == []
    assert len(list(false_alarms(readers, [Fault("delete", 1.0, 49.0 - HEALING_SECONDS, key=KEY)]))) == 1


def after_the_gap(*visits: Visit) -> list[str]:
    """The verdict on a reader that had these visits, of a log that is whole in the end."""
    whole = history(0, 1, 2, told=())
    reader = Reader("r", "t", "browse", joined_seconds=0.0, visits=list(visits), finished=True)
    return judge(History(requests=whole.requests, readers=[whole.readers[-1], reader], faults=whole.faults))


def a_visit(behind: int, *found: int, told: tuple[Gap, ...] = ()) -> Visit:
    return Visit(B0, behind, 5.0, 6.0, [Found(0, n, b"k", b"k %d" % n, 5.5) for n in found], "", list(told))


def test_a_reader_that_waits_for_the_gap_to_heal_is_given_everything() -> None:
    assert after_the_gap(a_visit(0, 0, told=(GAP,)), a_visit(1, 1, 2)) == []


def test_a_gap_that_was_told_once_does_not_let_a_later_answer_pass_over_it_in_silence() -> None:
    complaints = after_the_gap(a_visit(0, 0, told=(GAP,)), a_visit(1, 2))
    assert {"skipped", "not seen"} <= words(complaints)


def test_a_reader_that_ends_at_the_gap_has_been_told_why() -> None:
    assert after_the_gap(a_visit(0, 0), a_visit(1, told=(Gap(KEY, 0, 1),))) == []
