"""What a serving process has loaded is no more looked at by the garbage collector."""

import gc

from mq.process.garbage import collect_less_often, spare_what_is_loaded


def test_what_is_there_is_spared_and_what_comes_is_not() -> None:
    there: list[object] = []
    try:
        spare_what_is_loaded()
        collected = {id(each) for each in gc.get_objects()}
        coming: list[object] = []
        assert id(there) not in collected
        assert any(each is coming for each in gc.get_objects())
    finally:
        gc.unfreeze()


def test_however_the_process_began_it_collects_as_often_as_python_does() -> None:
    before = gc.get_threshold()
    try:
        gc.set_threshold(50_000)
        spare_what_is_loaded()
        assert gc.get_threshold() == (700, 10, 10)
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


def test_requests_under_way_bring_no_collection() -> None:
    before, began = gc.get_threshold(), []
    gc.callbacks.append(notice := lambda phase, _: began.append(phase))
    try:
        collect_less_often()
        gc.collect()
        began.clear()
        under_way = [[] for _ in range(1_500)]  # type: list[list[object]]
        assert not began
        under_way += [[] for _ in range(1_500)]
        assert began
    finally:
        gc.callbacks.remove(notice)
        gc.set_threshold(*before)
