"""Writers store one at a time, but nobody waits long for a permit."""

import asyncio

from filer.segment.writer.write_limiter import WriteLimiter


async def test_one_at_a_time_while_permits_are_short():
    limiter, under_way, most = WriteLimiter(1), 0, 0

    async def work():
        nonlocal under_way, most
        async with limiter.permit():
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0)
            under_way -= 1

    await asyncio.gather(*(work() for _ in range(20)))
    assert most == 1


async def test_a_writer_that_has_waited_goes_on_without_a_permit():
    limiter, blocked, passed = WriteLimiter(1), asyncio.Event(), asyncio.Event()

    async def hold():
        async with limiter.permit():
            blocked.set()
            await passed.wait()

    holding = asyncio.create_task(hold())
    await blocked.wait()
    async with asyncio.timeout(10), limiter.permit():
        passed.set()
    await holding
    async with asyncio.timeout(10), limiter.permit():
        pass


async def test_tells_whether_anybody_stores_with_a_permit_or_without():
    free = []
    limiter = WriteLimiter(1, on_free=lambda: free.append(limiter.is_storing))
    assert not limiter.is_storing
    async with asyncio.timeout(10), limiter.permit():
        async with limiter.permit():
            assert limiter.is_storing
        assert limiter.is_storing and not free
    assert free == [False]
