"""Spark's daemon, with the imports done: `python -m tests.support.spark_daemon MODULE`.

Spark asks Python for each thing in a process of its own, which its daemon forks, and which then imports pyarrow, pandas
and the client. That takes longer than most of what tests ask, so here it is done once, before the first fork.
"""

import contextlib
import gc
import importlib
import sys

from pyspark.daemon import manager

_IMPORTS = ("pyspark.worker", "pandas", "braidmq.spark", "pipeline.tasks")


def load() -> None:
    """Import what the processes need; what is wrong with it shows in the first of them that does."""
    for name in (*sys.argv[1:], *_IMPORTS):
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    # Collecting garbage in a child would copy the memory that it shares with this one.
    gc.freeze()


if __name__ == "__main__":
    load()
    manager()
