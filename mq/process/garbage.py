"""Python's garbage collector in a serving process."""

import gc

# Those of Python. `mq` starts with others.
_THRESHOLDS = (700, 10, 10)


def spare_what_is_loaded() -> None:
    """Exclude all present objects from collection: modules and what was set up live as long as the process.

    A full collection visits every object while nothing else runs. The libraries' objects alone take some 100 ms. It
    happens whenever a broker has made a quarter as many objects of its own, and publishers waited for it measurably.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
