from braidmq.markers import PageMarkers
from filer.topic.positions import from_marker, to_marker

START = to_marker("t", {1: 500, 7: 3})
SEGMENTS, OFFSETS = [1, 1, 2, 3, 2], [500, 501, 0, 0, 1]
END = to_marker("t", {2: 2, 3: 1, 7: 3})


def markers() -> PageMarkers:
    return PageMarkers("t", START, SEGMENTS, OFFSETS, END)


def test_each_message_moves_its_segment_on() -> None:
    page = markers()
    assert [from_marker("t", page.after(row)) for row in range(4)] == [
        {1: 501, 7: 3},
        {1: 502, 7: 3},
        {1: 502, 2: 1, 7: 3},
        {1: 502, 2: 1, 3: 1, 7: 3},
    ]


def test_after_the_last_it_is_the_brokers_own() -> None:
    assert markers().after(4) == END


def test_the_order_of_asking_does_not_matter() -> None:
    page, fresh = markers(), [markers().after(row) for row in range(5)]
    for row in (3, 0, 0, 2, 1, 4, 3):
        assert page.after(row) == fresh[row]


def test_a_single_message_needs_no_start() -> None:
    assert PageMarkers("t", None, [4], [8], END).after(0) == END
