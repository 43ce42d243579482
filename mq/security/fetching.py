"""Gets the documents that an OpenID issuer publishes, with a small bound of time and of bytes, and no redirects."""

import aiohttp

from mq.security.issuer_keys import IssuerFailed
from mq.security.key_ring import MOST_BYTES

TIMEOUT_SECONDS = 5.0
_OK = 200


async def fetch(url: str) -> bytes:
    """The content at an address. Raises `IssuerFailed`."""
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=True) as session,
            session.get(url, allow_redirects=False) as answer,
        ):
            if answer.status != _OK:
                raise IssuerFailed(f"{url} answered {answer.status}")
            data = await answer.content.read(MOST_BYTES + 1)
            while len(data) <= MOST_BYTES and (more := await answer.content.read(MOST_BYTES + 1 - len(data))):
                data += more
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise IssuerFailed(f"{url} does not answer: {str(error) or type(error).__name__}") from error
    if len(data) > MOST_BYTES:
        raise IssuerFailed(f"{url} answered more than {MOST_BYTES} bytes")
    return data
