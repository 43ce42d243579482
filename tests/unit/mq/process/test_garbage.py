"""What a serving process has loaded is no more looked at by the garbage collector."""

import gc

from mq.process.garbage import spare_what_is_loaded


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
