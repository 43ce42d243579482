"""Work that goes on beside a test."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any


@contextlib.asynccontextmanager
async def going_on(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """A context beside which they run. Raises what one of them has raised, if the block raises nothing."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
