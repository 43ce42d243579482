"""An idle cluster, for a test that interrupts it: `python -m tests.support.cluster.idle_cluster FOLDER`.

Prints the process id of each of its processes in a line when they run, then waits to be ended.
"""

import signal
import sys
import time
from pathlib import Path

from tests.support.cluster.cluster import Cluster
from tests.support.store.shared_store import SharedDirectory


def main(folder: Path) -> None:
    # A run of tests in a shell's background has it ignored, and its processes inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with Cluster(folder, SharedDirectory(folder / "store"), brokers=2) as cluster:
        # One that stands still does not notice a polite request.
        cluster.pause("b1")
        print(*(member.process.process.pid for member in cluster.brokers.values()), flush=True)
        while True:
            time.sleep(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
