"""Finds out why no ZooKeeper answers at the given addresses."""

import asyncio
import os

from kazoo.hosts import collect_hosts

_CONNECT_SECONDS = 1.0


async def why_unreachable(hosts: str) -> str:
    """Describe for people what is wrong at each of the addresses `host:port,host:port`."""
    addresses, _ = collect_hosts(hosts)
    return "; ".join(await asyncio.gather(*(_examine(host, port) for host, port in addresses)))


async def _examine(host: str, port: int) -> str:
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), _CONNECT_SECONDS)
    except TimeoutError:
        return f"{address}: nobody answers"
    except OSError as error:
        return f"{address}: {_reason(error)}"
    writer.close()
    return f"{address}: something listens, but gives no session: not a ZooKeeper, or one without a majority"


def _reason(error: OSError) -> str:
    # asyncio puts the address into the text of a refused connection; the answer has it already.
    return os.strerror(error.errno) if error.errno is not None and error.errno > 0 else str(error.strerror or error)
