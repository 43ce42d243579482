"""Which allocator Arrow's memory comes from in a serving process."""

import os

import pyarrow as pa

_CHOSEN_BY_USER = "ARROW_DEFAULT_MEMORY_POOL"


def choose_memory_pool() -> None:
    """Take jemalloc where this build of Arrow has it and the user's environment names no other.

    It keeps freed memory for a second before the system has it back, and a broker's next file needs as much as its
    last: without the page faults of fresh memory an Arrow publish was measured to cost a tenth less processor time.
    """
    if _CHOSEN_BY_USER not in os.environ and "jemalloc" in pa.supported_memory_backends():
        pa.set_memory_pool(pa.jemalloc_memory_pool())
