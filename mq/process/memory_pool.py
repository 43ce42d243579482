"""The allocator of Arrow's memory in a serving process."""

import os

import pyarrow as pa

_CHOSEN_BY_USER = "ARROW_DEFAULT_MEMORY_POOL"


def choose_memory_pool() -> None:
    """Use jemalloc, if this build of Arrow has it and the user's environment names no other allocator.

    jemalloc returns freed memory to the system only after a second, and a broker's next file needs as much memory as
    its last one. That avoids the page faults of fresh memory: an Arrow publish took a tenth less processor time.
    """
    if _CHOSEN_BY_USER not in os.environ and "jemalloc" in pa.supported_memory_backends():
        pa.set_memory_pool(pa.jemalloc_memory_pool())
