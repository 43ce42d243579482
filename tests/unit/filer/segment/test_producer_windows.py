"""Windows of producers against a naive model that remembers every slot by itself."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filer.errors import CorruptFile
from filer.format.requests import (
    Position,
    RequestId,
    StoredRequest,
    owners_to_json,
    requests_from_json,
    requests_to_json,
)
from filer.segment import producer_windows, sequence_window
from filer.segment.producer_owners import CONTESTED
from filer.segment.producer_windows import EXPIRY_US, ProducerWindows
from filer.segment.sequence_window import WINDOW_SEQUENCES, Found
from filer.slots import SLOTS

SAMPLE = range(0, SLOTS, SLOTS // 8)
"""One slot of each range that segments can have here."""
SMALL_WINDOW = 3
PRODUCERS = ("p", "q")
ANN, BOB = "a" * 16, "b" * 16
"""Digests of principals."""
HOUR_US = EXPIRY_US


def note(
    windows: ProducerWindows, sequence: int, *, producer: str = "p", segment: int = 0, seen_us: int = 0, owner: str = ""
) -> Position:
    position = Position(segment, sequence * 10, 1)
    windows.note(RequestId(producer, sequence, owner), position, seen_us)
    return position


def at(windows: ProducerWindows, slot: int, request: RequestId) -> Found:
    """What the windows know of a request in one slot; their answer has to tile their slots."""
    parts = windows.look_up(request)
    bounds = [windows.start, *(part.stop for part in parts)]
    assert [part.start for part in parts] == bounds[:-1]
    assert bounds[-1] == windows.stop
    (found,) = (part for part in parts if part.start <= slot < part.stop)
    return found


def remembers(windows: ProducerWindows, producer: str) -> bool:
    return not all(part.position is None for part in windows.look_up(RequestId(producer, 1)))


# -- the model ---------------------------------------------------------------------------------------------


@dataclass
class Slot:
    """What is known of one producer in one slot."""

    positions: dict[int, Position] = field(default_factory=dict)

    def is_past(self, sequence: int) -> bool:
        return len(self.positions) == SMALL_WINDOW and sequence < min(self.positions)

    def note(self, sequence: int, position: Position) -> None:
        if sequence in self.positions or self.is_past(sequence):
            return
        self.positions[sequence] = position
        if len(self.positions) > SMALL_WINDOW:
            del self.positions[min(self.positions)]


class Segments:
    """Segments that tile the key space, split and merge; beside each slot's truth."""

    def __init__(self) -> None:
        self.open = [ProducerWindows()]
        self.slots = {(slot, producer): Slot() for slot in SAMPLE for producer in PRODUCERS}
        self._stored = 0

    def note(self, index: int, producer: str, sequence: int) -> None:
        windows = self.open[index % len(self.open)]
        self._stored += 1
        position = Position(0, self._stored, 1)
        windows.note(RequestId(producer, sequence), position, self._stored)
        for slot in SAMPLE:
            if windows.start <= slot < windows.stop:
                self.slots[slot, producer].note(sequence, position)

    def split(self, index: int) -> None:
        index %= len(self.open)
        parent = self.open[index]
        middle = (parent.start + parent.stop) // 2
        if middle in SAMPLE:
            children = [parent.restricted(parent.start, middle), parent.restricted(middle, parent.stop)]
            self.open[index : index + 1] = children

    def merge(self, index: int) -> None:
        index %= len(self.open)
        if parents := self.open[index : index + 2]:
            merged = ProducerWindows.combined(parents, parents[0].start, parents[-1].stop)
            self.open[index : index + 2] = [merged]

    def store(self, index: int) -> None:
        index %= len(self.open)
        self.open[index] = ProducerWindows.from_bytes(self.open[index].to_bytes())

    def check(self, sequences: Iterator[int]) -> None:
        for sequence in sequences:
            for (slot, producer), truth in self.slots.items():
                (windows,) = (each for each in self.open if each.start <= slot < each.stop)
                found = at(windows, slot, RequestId(producer, sequence))
                assert found.position == truth.positions.get(sequence)
                assert found.expired == (found.position is None and truth.is_past(sequence))


places = st.integers(0, 7)
steps = st.one_of(
    st.tuples(st.just("note"), places, st.sampled_from(PRODUCERS), st.integers(0, 9)),
    st.tuples(st.sampled_from(["split", "merge", "store"]), places),
)


@given(st.lists(steps, max_size=40))
def test_any_sequence_of_notes_and_transitions(taken: list[tuple[str, int, str, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sequence_window, "WINDOW_SEQUENCES", SMALL_WINDOW)
        segments = Segments()
        for step, *arguments in taken:
            getattr(segments, step)(*arguments)
        segments.check(iter(range(10)))


# -- one window --------------------------------------------------------------------------------------------


def test_the_last_thousand_are_known_and_what_is_below_is_not_guessed_at() -> None:
    windows = ProducerWindows()
    for sequence in range(1, WINDOW_SEQUENCES + 2):
        note(windows, sequence)
    assert at(windows, 5, RequestId("p", 2)).position == Position(0, 20, 1)
    assert at(windows, 5, RequestId("p", WINDOW_SEQUENCES + 1)).position == Position(0, (WINDOW_SEQUENCES + 1) * 10, 1)
    assert at(windows, 5, RequestId("p", 1)) == Found(0, SLOTS, None, True)
    assert at(windows, 5, RequestId("p", 0)).expired
    assert at(windows, 5, RequestId("p", WINDOW_SEQUENCES + 2)) == Found(0, SLOTS, None, False)
    assert at(windows, 5, RequestId("other", 1)) == Found(0, SLOTS, None, False)


def test_requests_may_overtake_each_other() -> None:
    windows = ProducerWindows()
    seventh = note(windows, 7)
    assert at(windows, 0, RequestId("p", 5)) == Found(0, SLOTS, None, False)
    fifth = note(windows, 5)
    assert [at(windows, 0, RequestId("p", n)).position for n in (5, 6, 7)] == [fifth, None, seventh]


def test_a_merge_keeps_what_only_one_parent_had() -> None:
    left, right = ProducerWindows(0, 100), ProducerWindows(100, 200)
    stored = note(left, 1, segment=4)
    merged = ProducerWindows.combined([left, right], 0, 200)
    assert merged.look_up(RequestId("p", 1)) == [Found(0, 100, stored, False), Found(100, 200, None, False)]
    # The rest of it comes to the merged segment: each part keeps its own first position.
    completed = note(merged, 1, segment=6)
    assert [part.position for part in merged.look_up(RequestId("p", 1))] == [stored, completed]


def test_what_a_predecessor_stored_stays_where_it_is_known_only_later() -> None:
    """A recovery notes a segment's own files first and learns from the predecessors' seals after that."""
    parent, own = ProducerWindows(0, 100), ProducerWindows()
    first = note(parent, 1, segment=4)
    again = note(own, 1, segment=6)
    known = ProducerWindows.combined([parent.restricted(0, 100), own], 0, 200)
    assert [part.position for part in known.look_up(RequestId("p", 1))] == [first, again]


def test_neighbours_that_know_the_same_are_one_again() -> None:
    parent = ProducerWindows()
    for sequence in range(5):
        note(parent, sequence)
    halves = [parent.restricted(0, 1000), parent.restricted(1000, SLOTS)]
    assert len(ProducerWindows.combined(halves, 0, SLOTS).look_up(RequestId("p", 1))) == 1


def test_copies_go_their_own_ways() -> None:
    windows = ProducerWindows()
    note(windows, 1)
    copy = windows.copy()
    note(windows, 2)
    note(copy, 3)
    assert [remembered.request.sequence for remembered in windows.stored_between(0, 0, 100)] == [1, 2]
    assert [remembered.request.sequence for remembered in copy.stored_between(0, 0, 100)] == [1, 3]


# -- bounds ------------------------------------------------------------------------------------------------


def test_the_silent_are_forgotten_after_an_hour_of_the_log() -> None:
    windows = ProducerWindows()
    note(windows, 1, producer="early", seen_us=5)
    note(windows, 1, producer="late", seen_us=6)
    windows.expire(5 + HOUR_US)
    assert remembers(windows, "early") and remembers(windows, "late")
    windows.expire(6 + HOUR_US)
    assert not remembers(windows, "early") and remembers(windows, "late")
    windows.expire(7 + HOUR_US)
    assert windows.empty


def test_a_producer_that_continues_is_not_silent() -> None:
    windows = ProducerWindows()
    note(windows, 1, producer="busy", seen_us=1)
    note(windows, 1, producer="silent", seen_us=2)
    note(windows, 2, producer="busy", seen_us=3)
    windows.expire(3 + HOUR_US)
    assert remembers(windows, "busy") and not remembers(windows, "silent")


def test_successors_forget_by_the_later_of_two_parents() -> None:
    left, right = ProducerWindows(0, 100), ProducerWindows(100, 200)
    note(left, 1, seen_us=1)
    note(right, 1, seen_us=5)
    note(right, 1, producer="q", seen_us=3)
    merged = ProducerWindows.combined([left, right], 0, 200)
    merged.expire(4 + HOUR_US)
    assert remembers(merged, "p") and not remembers(merged, "q")


@pytest.mark.parametrize("limit", ["MAX_PRODUCERS", "MAX_SEQUENCES"])
def test_too_many_producers_push_out_the_longest_silent(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(producer_windows, limit, 3)
    windows = ProducerWindows()
    for producer in ("a", "b", "c"):
        note(windows, 1, producer=producer)
    windows.note(RequestId("a", 1), Position(0, 7, 1), 0)
    note(windows, 1, producer="d")
    assert [name for name in "abcd" if remembers(windows, name)] == ["a", "c", "d"]
    assert windows.restricted(0, 5).look_up(RequestId("b", 1)) == [Found(0, 5, None, True)]


def test_what_was_dropped_gives_its_room_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_windows, "MAX_SEQUENCES", 4)
    windows = ProducerWindows()
    for round_ in range(10):
        for sequence in range(2):
            note(windows, sequence, producer=f"p{round_}", seen_us=round_)
    assert [n for n in range(10) if remembers(windows, f"p{n}")] == [8, 9]


# -- on the store ------------------------------------------------------------------------------------------


def test_a_thousand_sequences_take_little_room() -> None:
    windows = ProducerWindows()
    for sequence in range(WINDOW_SEQUENCES):
        note(windows, 2**58 - sequence)
    data = windows.to_bytes()
    assert len(data) < 4 * WINDOW_SEQUENCES
    again = ProducerWindows.from_bytes(data)
    assert again.to_bytes() == data
    assert at(again, 0, RequestId("p", 2**58)).position == Position(0, 2**58 * 10, 1)


def broken(document: dict[str, object]) -> bytes:
    good = {"version": 1, "range": [0, 10], "producers": [["p", 1, [[0, 10, [1], [0], [0], [1]]]]]}
    return zlib.compress(orjson.dumps({**good, **document}))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nonsense",
        broken({})[:-4],
        broken({"version": 2}),
        broken({"range": [1]}),
        broken({"producers": 7}),
        broken({"producers": [["p", 1, [[0, 10, [1], [0], [0]]]]]}),
        broken({"producers": [["p", 1, [[0, 10, [1, 1], [0], [0], [1]]]]]}),
        broken({"producers": [["p", 1, [[0, 10, [], [], [], []]]]]}),
        broken({"producers": [["p", 1, [[10, 10, [1], [0], [0], [1]]]]]}),
        broken({"producers": [["p", 1, [[0, 10, ["x"], [0], [0], [1]]]]]}),
        broken({"producers": [["p", 1, [[0, 10, list(range(2000))] + [[0] * 2000] * 3]]]}),
        broken({"owners": 7}),
        broken({"owners": {"p": 7}}),
        broken({"owners": {"q": ANN}}),
    ],
)
def test_damaged_windows_are_refused(data: bytes) -> None:
    assert at(ProducerWindows.from_bytes(broken({})), 0, RequestId("p", 1)).position == Position(0, 0, 1)
    with pytest.raises(CorruptFile):
        ProducerWindows.from_bytes(data)


def test_requests_of_a_range_of_offsets() -> None:
    """What a roll-up's footer takes over: once each, however many ranges know it, and nothing of other segments."""
    windows = ProducerWindows(0, 200)
    inherited = ProducerWindows(0, 100)
    note(inherited, 1, segment=4)
    windows = ProducerWindows.combined([inherited], 0, 200)
    for sequence in (3, 2, 1):
        note(windows, sequence, segment=6)
    note(windows, 9, producer="q", segment=6)
    wanted = [StoredRequest(RequestId("p", n), Position(6, n * 10, 1)) for n in (1, 2)]
    assert windows.stored_between(6, 10, 30) == wanted
    assert windows.stored_between(5, 0, 1000) == []


OWNERS = {"p": ANN, "q:1": "", "r-2": BOB}
stored_requests = st.lists(
    st.builds(
        StoredRequest,
        st.builds(
            lambda producer, sequence: RequestId(producer, sequence, OWNERS[producer]),
            st.sampled_from(["p", "q:1", "r-2"]),
            st.integers(0, 2**62),
        ),
        st.builds(Position, st.just(3), st.integers(50, 2**62), st.integers(1, 1000)),
    )
)


@given(stored_requests)
def test_footers_say_the_same_again(requests: list[StoredRequest]) -> None:
    again = requests_from_json(requests_to_json(requests, 50), 3, 50, owners_to_json(requests))
    assert sorted(again) == sorted(requests)


@pytest.mark.parametrize("text", ["", "[]", '{"p": 1}', '{"p": [1, 2]}', '{"p": [1, 2, "3"]}', '{"p": [1, 2, true]}'])
def test_damaged_requests_of_a_footer_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        requests_from_json(text, 0, 0)


@pytest.mark.parametrize("owners", ["{", "[]", '{"p": 1}', '{"p": ["ann"]}'])
def test_damaged_owners_of_a_footer_are_refused(owners: str) -> None:
    with pytest.raises(ValueError):
        requests_from_json('{"p": [1, 0, 1]}', 0, 0, owners)


# -- owners ------------------------------------------------------------------------------------------------


def test_the_first_principal_that_uses_an_id_owns_it() -> None:
    windows = ProducerWindows()
    assert windows.owner_of("p") == ""
    note(windows, 1)
    assert windows.owner_of("p") == "", "whoever is trusted without a credential owns nothing"
    note(windows, 2, owner=ANN)
    note(windows, 3)
    assert windows.owner_of("p") == ANN
    assert windows.stored_between(0, 0, 100)[0].request == RequestId("p", 1, ANN)


def test_owners_are_kept_across_splits_merges_copies_and_the_store() -> None:
    windows = ProducerWindows()
    note(windows, 1, owner=ANN)
    note(windows, 1, producer="q", owner=BOB)
    note(windows, 1, producer="nobody's")
    halves = [windows.restricted(0, 100), windows.restricted(100, SLOTS)]
    merged = ProducerWindows.combined(halves, 0, SLOTS)
    for each in (*halves, merged, merged.copy(), ProducerWindows.from_bytes(merged.to_bytes())):
        assert [each.owner_of(name) for name in ("p", "q", "nobody's")] == [ANN, BOB, ""]


def test_an_id_that_two_owned_is_nobodys_after_a_merge() -> None:
    """Neither is told the other's positions, and nothing of either is stored twice."""
    left, right = ProducerWindows(0, 100), ProducerWindows(100, SLOTS)
    note(left, 1, owner=ANN)
    position = note(right, 2, owner=BOB)
    merged = ProducerWindows.combined([left, right], 0, SLOTS)
    assert merged.owner_of("p") == CONTESTED
    assert ProducerWindows.from_bytes(merged.to_bytes()).owner_of("p") == CONTESTED
    assert at(merged, 100, RequestId("p", 2)).position == position
    assert ProducerWindows.combined([left, ProducerWindows(100, SLOTS)], 0, SLOTS).owner_of("p") == ANN


def test_an_id_of_another_that_has_expired_is_new() -> None:
    """As a recovery finds it: the owner had forgotten it before it took the other's request."""
    windows = ProducerWindows()
    note(windows, 1, owner=ANN, seen_us=5)
    later = note(windows, 2, owner=BOB, seen_us=6 + HOUR_US)
    assert windows.owner_of("p") == BOB
    assert at(windows, 0, RequestId("p", 1)).position is None
    inherited = ProducerWindows()
    note(inherited, 1, owner=ANN, seen_us=5)
    both = ProducerWindows.combined([inherited, windows], 0, SLOTS)
    assert both.owner_of("p") == BOB
    assert [at(both, 0, RequestId("p", n)).position for n in (1, 2)] == [None, later]


def test_owners_that_come_too_soon_one_after_the_other_are_both_remembered() -> None:
    """Where files told of no owner, and a snapshot that did is gone: what may be repeated stays known."""
    windows = ProducerWindows()
    first = note(windows, 1, owner=ANN, seen_us=5)
    note(windows, 2, owner=BOB, seen_us=5 + HOUR_US)
    assert windows.owner_of("p") == CONTESTED
    assert at(windows, 0, RequestId("p", 1)).position == first


def test_who_owned_an_id_is_remembered_where_room_was_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_windows, "MAX_PRODUCERS", 1)
    windows = ProducerWindows()
    note(windows, 1, owner=ANN, seen_us=5)
    note(windows, 1, producer="q", seen_us=6)
    again = ProducerWindows.from_bytes(windows.restricted(0, SLOTS).to_bytes())
    for each in (windows, again):
        assert each.owner_of("p") == ANN
        note(each, 2, owner=ANN, seen_us=7)
        assert each.owner_of("p") == ANN
        each.expire(8 + HOUR_US)
        assert each.owner_of("p") == ""


def test_the_forgotten_of_another_that_have_expired_are_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_windows, "MAX_PRODUCERS", 1)
    windows = ProducerWindows()
    note(windows, 7, owner=ANN, seen_us=5)
    note(windows, 1, producer="q", seen_us=6)
    position = note(windows, 1, owner=BOB, seen_us=6 + HOUR_US)
    assert windows.owner_of("p") == BOB
    assert at(windows, 0, RequestId("p", 1)).position == position


def test_versions_before_read_the_rest_and_what_they_wrote_has_no_owners() -> None:
    owned, plain = ProducerWindows(), ProducerWindows()
    note(owned, 1, owner=ANN)
    note(plain, 1)
    documents = [orjson.loads(zlib.decompress(windows.to_bytes())) for windows in (owned, plain)]
    assert documents[0].pop("owners") == {"p": ANN}
    assert documents[0] == documents[1]
    again = ProducerWindows.from_bytes(zlib.compress(orjson.dumps(documents[1])))
    assert again.owner_of("p") == ""


def test_versions_before_read_the_requests_of_a_footer_and_what_they_wrote_has_no_owners() -> None:
    owned = [StoredRequest(RequestId("p", 7, ANN), Position(3, 50, 1))]
    plain = [StoredRequest(RequestId("p", 7), Position(3, 50, 1))]
    assert requests_to_json(owned, 50) == requests_to_json(plain, 50) == '{"p":[7,0,1]}'
    assert owners_to_json(plain) == ""
    assert list(requests_from_json('{"p":[7,0,1]}', 3, 50)) == plain
