"""Python's garbage collector in a serving process."""

import gc

# Those of Python. `mq` starts with others.
_THRESHOLDS = (700, 10, 10)
YOUNG_OBJECTS = 2_000
"""So many more objects than before bring a collection of the young ones; by Python's default it is 700."""


def spare_what_is_loaded() -> None:
    """Exclude all present objects from collection: modules and what was set up live as long as the process.

    A full collection visits every object while nothing else runs. The libraries' objects alone take some 100 ms. It
    happens whenever a broker has made a quarter as many objects of its own, and publishers waited for it measurably.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


def collect_less_often() -> None:
    """Collect young objects when the requests under way are not most of them.

    A request has some 40 objects until it is answered. With 64 at once, by default, each wave of them brought three
    collections that found no garbage, and took a fourteenth of the event loop's time for single messages.
    """
    _, *older = gc.get_threshold()
    gc.set_threshold(YOUNG_OBJECTS, *older)
