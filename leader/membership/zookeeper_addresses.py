"""Finds out why no ZooKeeper answers at the given addresses."""

import asyncio
import os
import ssl

from kazoo.hosts import collect_hosts

from leader.membership.zookeeper_access import ZooKeeperTls

_CONNECT_SECONDS = 1.0
# A handshake takes computing at both ends.
TLS_SECONDS = 5.0


async def why_unreachable(hosts: str, tls: ZooKeeperTls | None = None) -> str:
    """Try each of the addresses `host:port,host:port`, and report each result in words for an operator."""
    addresses, _ = collect_hosts(hosts)
    return "; ".join(await asyncio.gather(*(_examine(host, port, tls) for host, port in addresses)))


async def _examine(host: str, port: int, tls: ZooKeeperTls | None) -> str:
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        connecting = asyncio.open_connection(host, port, ssl=None if tls is None else tls.context())
        _, writer = await asyncio.wait_for(connecting, _CONNECT_SECONDS if tls is None else TLS_SECONDS)
    except TimeoutError:
        return f"{address}: nobody answers"
    except ssl.SSLCertVerificationError as error:
        return f"{address}: its certificate is not trusted: {error.verify_message}"
    except ssl.SSLError as error:
        return f"{address}: no TLS: {error.reason or error}"
    except OSError as error:
        return f"{address}: {_reason(error)}"
    writer.close()
    return (
        f"{address}: something listens, but gives no session: not a ZooKeeper, one without a majority, or one that "
        "takes longer, as on a machine that is busy"
    )


def _reason(error: OSError) -> str:
    # asyncio puts the address into the text of a refused connection; the answer has it already.
    return os.strerror(error.errno) if error.errno is not None and error.errno > 0 else str(error.strerror or error)
