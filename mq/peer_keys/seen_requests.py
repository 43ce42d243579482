"""The requests of other brokers that were served, so that none is served twice: in bounded memory.

Each process numbers its requests. For each process a window of the last numbers is kept, a bit for each: that bounds
the memory at any rate. A number below the window counts as seen; its sender signs anew and sends again.
"""

from collections import OrderedDict

NUMBERS_PER_BLOCK = 4096
BLOCKS = 64
"""The window: the last 262,144 numbers, 32 KiB of bits if all of them came here."""
MOST_SENDERS = 1000


class _Window:
    """The numbers of one process."""

    __slots__ = ("_blocks", "_highest", "newest_us")

    def __init__(self) -> None:
        self._blocks: dict[int, bytearray] = {}
        self._highest = 0
        self.newest_us = 0

    def take(self, number: int, time_us: int) -> bool:
        """Note a number; False if it was noted before, or is below the window."""
        block, within = divmod(number, NUMBERS_PER_BLOCK)
        if block <= self._highest - BLOCKS:
            return False
        if block > self._highest:
            self._highest = block
            self._blocks = {each: bits for each, bits in self._blocks.items() if each > block - BLOCKS}
        bits = self._blocks.setdefault(block, bytearray(NUMBERS_PER_BLOCK // 8))
        byte, bit = within >> 3, 1 << (within & 7)
        if bits[byte] & bit:
            return False
        bits[byte] |= bit
        self.newest_us = max(self.newest_us, time_us)
        return True


class SeenRequests:
    """The windows, by the life of the sending process. Pass only requests with a good signature and time.

    `window_us` is how old a request may be: a process that was silent for longer cannot repeat anything, and its window
    is forgotten once there are too many.
    """

    def __init__(self, window_us: int) -> None:
        self._window_us = window_us
        # The process heard last comes last.
        self._windows: OrderedDict[str, _Window] = OrderedDict()

    def take(self, life: str, number: int, time_us: int, *, now_us: int) -> bool:
        """Note a request; False if it was noted before, or if that cannot be known any more."""
        window = self._windows.get(life)
        if window is None:
            if not self._has_room(now_us):
                return False
            window = self._windows[life] = _Window()
        self._windows.move_to_end(life)
        return window.take(number, time_us)

    def _has_room(self, now_us: int) -> bool:
        while len(self._windows) >= MOST_SENDERS:
            life, window = next(iter(self._windows.items()))
            if window.newest_us >= now_us - self._window_us:
                return False
            del self._windows[life]
        return True
