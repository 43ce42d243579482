"""What a job tells the brokers."""

import httpx

from braidmq import Client
from braidmq.errors import BraidMQError

TIMEOUT_SECONDS = 30.0


def tell_of_rollups(url: str, topic: str) -> list[str]:
    """Have every broker look for roll-ups that others wrote; which of them could not be told, and why.

    Which broker keeps a segment changes, so all of them are told. One that is not goes on as before: it takes in what
    it finds when it begins to keep the segment, and no reader misses anything until then.
    """
    try:
        with Client(url) as client:
            brokers = {broker.broker: broker.url or client.urls[0] for broker in client.cluster().brokers}
    except BraidMQError as error:
        return [str(error)]
    untold = []
    for broker, address in brokers.items():
        try:
            answer = httpx.post(f"{address}/v1/topics/{topic}/upkeep", timeout=TIMEOUT_SECONDS, trust_env=False)
            answer.raise_for_status()
        except httpx.HTTPError as error:
            untold.append(f"broker {broker} at {address}: {error}")
    return untold
