"""The certificates of a broker: those of its listener for clients, and those of its listener for brokers."""

import asyncio

from filer.clock import Clock
from mq.base.settings import BrokerSettings
from mq.tls.contexts import peer_files, public_files
from mq.tls.reload import Certificates


class BrokerCertificates:
    """Both are of the same files, unless brokers have certificates of their own; they call this one by `called_host`.

    Each is read again when its own files change: bad files of one do not delay new ones of the other. Raises
    `InvalidConfig`.
    """

    def __init__(self, settings: BrokerSettings, clock: Clock, called_host: str = "") -> None:
        self.clients = Certificates(public_files(settings), clock)
        own = peer_files(settings, called_host)
        self.brokers = self.clients if own is None else Certificates(own, clock)

    def expires_seconds(self) -> dict[str, int]:
        """Return when the certificate of each listener that has one expires, since the epoch: `clients`, `brokers`."""
        found = {each.listener: each.expires_seconds for each in (self.clients, self.brokers)}
        return {listener: seconds for listener, seconds in found.items() if seconds is not None}

    async def watch(self) -> None:
        """Watch the files until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for each in {self.clients, self.brokers}:
                tasks.create_task(each.watch())
