"""Python's garbage collector in a process that serves."""

import gc


def spare_what_is_loaded() -> None:
    """Have the collector leave alone all there is by now: modules and what was set up stay as long as the process.

    A full collection looks at every object, with nothing else running: at those of the libraries alone for some 100 ms,
    whenever a broker has made a quarter as many of its own. Publishers were seen to wait for that.
    """
    gc.collect()
    gc.freeze()
