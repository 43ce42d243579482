"""A log that does everything right passes, whatever happens to it; any one corruption of its history is seen."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cluster.checker.history import GARBLED, REACHED, Attempt, Found, Gap, History, Reader, Request, Sent, Visit
from tests.cluster.checker.verdict import judge, summary
from tests.unit.checker.simulated_history import Simulation

Corruption = Callable[[History, random.Random], None]


def simulated(seed: int) -> History:
    return Simulation(random.Random(seed)).run()


@given(st.integers(0, 2**32))
def test_what_is_right_passes(seed: int) -> None:
    # In simulated time nothing is stale: whoever asks is told all there is.
    assert judge(simulated(seed), staleness_seconds=0.0) == []


def acknowledged(history: History, chance: random.Random) -> Request:
    return chance.choice([request for request in history.requests if request.outcome == "acknowledged"])


def readers_of(history: History, topic: str) -> list[Reader]:
    return [reader for reader in history.readers if reader.topic == topic]


def finals_of(history: History, topic: str) -> list[Reader]:
    return [reader for reader in readers_of(history, topic) if reader.kind == "final"]


def early_reader(history: History, topic: str) -> Reader:
    """One that was there from the start, and has read everything."""
    return next(
        reader for reader in readers_of(history, topic) if reader.start == "earliest" and reader.kind != "final"
    )


def change_finals(history: History, topic: str, change: Callable[[list[Found]], list[Found]]) -> None:
    for reader in finals_of(history, topic):
        for visit in reader.visits:
            visit.found = change(visit.found)


def lose(history: History, chance: random.Random) -> None:
    """An acknowledged message is gone, and what came after it has moved up."""
    request = acknowledged(history, chance)
    value = chance.choice(request.messages).value
    found = next(m for m in finals_of(history, request.topic)[0].found if m.value == value)
    for reader in readers_of(history, request.topic):
        for visit in reader.visits:
            visit.found = [
                replace(m, offset=m.offset - (m.segment == found.segment and m.offset > found.offset))
                for m in visit.found
                if m.value != value
            ]


def double(history: History, chance: random.Random) -> None:
    """A message stands at the end of its segment once more."""
    request = acknowledged(history, chance)
    value = chance.choice(request.messages).value

    def with_double(found: list[Found]) -> list[Found]:
        again = next(m for m in found if m.value == value)
        end = 1 + max(m.offset for m in found if m.segment == again.segment)
        return [*found, replace(again, offset=end)]

    change_finals(history, request.topic, with_double)


def swap(history: History, chance: random.Random) -> None:
    """Two messages stand in each other's places for everybody, one of them acknowledged at its own."""
    request = acknowledged(history, chance)
    topic, own = request.topic, {message.value for message in request.messages}
    one = next(m for m in finals_of(history, topic)[0].found if m.value in own)
    other = chance.choice([m for m in finals_of(history, topic)[0].found if m.value not in own])
    contents = {one.value: other, other.value: one}
    for reader in readers_of(history, topic):
        for visit in reader.visits:
            visit.found = [
                replace(m, key=contents[m.value].key, value=contents[m.value].value) if m.value in contents else m
                for m in visit.found
            ]


def leave_a_gap(history: History, chance: random.Random) -> None:
    """The offsets of a segment do not begin where they should, for anybody."""
    topic = acknowledged(history, chance).topic
    segment = chance.choice(list(finals_of(history, topic)[0].found)).segment
    for reader in readers_of(history, topic):
        for visit in reader.visits:
            visit.found = [replace(m, offset=m.offset + (m.segment == segment)) for m in visit.found]


def tell_another_position(history: History, chance: random.Random) -> None:
    request = acknowledged(history, chance)
    for index, attempt in enumerate(request.attempts):
        moved = tuple((segment, base + 1000, count) for segment, base, count in attempt.positions)
        request.attempts[index] = replace(attempt, positions=moved)


def answer_a_repeat_otherwise(history: History, chance: random.Random) -> None:
    request = acknowledged(history, chance)
    first = request.acknowledgements[0]
    moved = tuple((segment, base + 1, count) for segment, base, count in first.positions)
    request.attempts.append(replace(first, positions=moved))


def refuse_a_repeat(history: History, chance: random.Random) -> None:
    acknowledged(history, chance).attempts.append(Attempt("http://b0", 0.0, 0.0, "failed", final=True, detail="409"))


def store_what_was_refused(history: History, chance: random.Random) -> None:
    request = acknowledged(history, chance)
    request.attempts[:] = [Attempt("http://b0", 0.0, 0.0, "failed")]


def store_what_nobody_sent(history: History, chance: random.Random) -> None:
    topic = acknowledged(history, chance).topic

    def with_stranger(found: list[Found]) -> list[Found]:
        end = 1 + max(m.offset for m in found if m.segment == found[0].segment)
        return [*found, Found(found[0].segment, end, b"x", b"x 7")]

    change_finals(history, topic, with_stranger)


def store_under_another_key(history: History, chance: random.Random) -> None:
    topic = acknowledged(history, chance).topic
    index = chance.randrange(len(list(finals_of(history, topic)[0].found)))
    value = list(finals_of(history, topic)[0].found)[index].value
    for reader in readers_of(history, topic):
        for visit in reader.visits:
            visit.found = [replace(m, key=b"x") if m.value == value else m for m in visit.found]


def skip(history: History, chance: random.Random) -> None:
    """A reader does not get one message that it should have got, and goes on behind it."""
    visit = _visit_with_messages(history, chance)
    visit.found[0] = replace(visit.found[0], offset=visit.found[0].offset + 1)


def repeat(history: History, chance: random.Random) -> None:
    visit = _visit_with_messages(history, chance)
    visit.found.append(visit.found[-1])


def see_a_phantom(history: History, chance: random.Random) -> None:
    """A reader was given a message that did not stay."""
    reader = early_reader(history, acknowledged(history, chance).topic)
    last = list(reader.found)[-1]
    end = 1 + max(m.offset for m in reader.found if m.segment == last.segment)
    reader.visits.append(Visit("http://b0", len(list(reader.found)), 1e6))
    reader.visits[-1].found.append(Found(last.segment, end, b"z", b"z 0", 1e6))


def see_another_value(history: History, chance: random.Random) -> None:
    visit = _visit_with_messages(history, chance)
    visit.found[0] = replace(visit.found[0], value=b"z 0")


def stop_reading(history: History, chance: random.Random) -> None:
    """A reader had all the time it needed and never came further."""
    reader = early_reader(history, acknowledged(history, chance).topic)
    reader.visits = []


def never_serve(history: History, chance: random.Random) -> None:
    reader = early_reader(history, acknowledged(history, chance).topic)
    reader.visits, reader.joined_seconds = [], None


def garble(history: History, chance: random.Random) -> None:
    _visit_with_messages(history, chance).end = GARBLED


def do_not_read(history: History, chance: random.Random) -> None:
    topic = acknowledged(history, chance).topic
    history.readers = [reader for reader in history.readers if reader.kind != "final" or reader.topic != topic]


def forget(history: History, chance: random.Random) -> None:
    """Long after, a broker says that the topic is empty."""
    topic = acknowledged(history, chance).topic
    claim = Visit("http://b0", 0, 1e6, 1e6, end=REACHED)
    history.readers.append(Reader("forgotten", topic, "browse", joined_seconds=1e6, visits=[claim]))


def read_another_value_elsewhere(history: History, chance: random.Random) -> None:
    """One broker gives another value at an offset, and nobody reads either of them in the end."""
    topic = acknowledged(history, chance).topic
    end = 1 + max(m.offset for m in finals_of(history, topic)[0].found)
    for name, value in (("one", b"z 0"), ("other", b"z 1")):
        visit = Visit("http://b0", 0, 1e6, 1e6, [Found(0, end, b"z", value, 1e6)])
        reader = Reader(name, topic, "stream", "latest", {0: end}, 1e6, [visit])
        history.readers.append(reader)


def answer_out_of_time(history: History, chance: random.Random) -> None:
    """A request stands at an offset before one that was answered long before it was sent."""
    request = acknowledged(history, chance)
    segment, base, _ = request.positions[0]
    early = Attempt("http://b0", -2.0, -1.0, "acknowledged", ((segment, base + 1000, 1),))
    history.requests.append(Request("early", request.topic, (Sent("early", 0),), [early]))


def enter_early(history: History, chance: random.Random) -> None:
    """A reader begins with a successor."""
    topic = acknowledged(history, chance).topic
    final = finals_of(history, topic)[0]
    segment = chance.choice(list(final.found)).segment
    newest = 1 + max(m.segment for m in final.found)
    visit = Visit("http://b0", 0, 1e6, 1e6, [Found(newest, 0, b"z", b"z 0", 1e6)])
    history.readers.append(Reader("hasty", topic, "stream", visits=[visit]))
    history.predecessors[topic][newest] = (segment,)


def tell_of_a_gap_where_none_is(history: History, chance: random.Random) -> None:
    visit = _visit_with_messages(history, chance)
    visit.told.append(Gap("topics/t/segments/segment=0/00.parquet", 0, 0, 1))


def _visit_with_messages(history: History, chance: random.Random) -> Visit:
    """A visit of a reader that was there from the start."""
    reader = early_reader(history, acknowledged(history, chance).topic)
    return chance.choice([visit for visit in reader.visits if visit.found])


CORRUPTIONS: dict[Corruption, str] = {
    lose: "lost",
    double: "doubled",
    swap: "moved",
    leave_a_gap: "gap",
    tell_another_position: "moved",
    answer_a_repeat_otherwise: "answered otherwise",
    refuse_a_repeat: "repeat refused",
    store_what_was_refused: "not refused",
    store_what_nobody_sent: "never sent",
    store_under_another_key: "wrong key",
    skip: "skipped",
    repeat: "went back",
    see_a_phantom: "phantom",
    see_another_value: "changed",
    stop_reading: "not seen",
    never_serve: "never served",
    garble: "garbled",
    do_not_read: "not read",
    forget: "back in time",
    read_another_value_elsewhere: "divergent",
    answer_out_of_time: "backwards",
    enter_early: "entered early",
    tell_of_a_gap_where_none_is: "false alarm",
}


@pytest.mark.parametrize("corruption", CORRUPTIONS, ids=lambda corruption: corruption.__name__)
@settings(max_examples=30)
@given(seed=st.integers(0, 2**32))
def test_one_corruption_is_seen(corruption: Corruption, seed: int) -> None:
    history = simulated(seed)
    corruption(history, random.Random(seed))
    complaints = judge(history)
    assert any(f": {CORRUPTIONS[corruption]}: " in complaint for complaint in complaints), complaints


def test_a_summary() -> None:
    history = simulated(1)
    assert f"{history.count('acknowledged')} acknowledged" in summary(history)
    assert "faults: none" in summary(history)


def test_a_load_that_nobody_read_is_not_clean() -> None:
    request = Request("p", "t", (Sent("k", 0),), [Attempt("http://b0", 0.0, 1.0, "acknowledged", ((0, 0, 1),))])
    assert judge(History(requests=[request])) == [
        "t: not read: nobody read the topic from its start to its end when the load was over"
    ]
