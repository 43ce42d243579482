"""A clock on which every sleep returns at once, with the time moved forward."""

import asyncio
import math

from filer.clock import ManualClock


class InstantClock(ManualClock):
    """Records every pause in `naps_seconds`."""

    def __init__(self) -> None:
        super().__init__()
        self.naps_seconds: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.naps_seconds.append(seconds)
        self._now_us += math.ceil(seconds * 1e6)
        await asyncio.sleep(0)
