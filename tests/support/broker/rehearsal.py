"""What takes a broker long when it does it first: who forks brokers imports this, and none of them has to do it.

FastAPI looks at the parameters of all endpoints, and botocore reads how requests to S3 are made. Both is kept.
"""

import asyncio
import os
from unittest import mock

from filer.clock import SystemClock
from filer.stores.memory_store import MemoryStore
from filer.stores.s3.s3_connection import S3Connection
from filer.stores.s3.s3_settings import S3Settings
from leader.membership.coordinator import InProcessCoordinator
from mq.base.settings import BrokerSettings
from mq.broker import Broker
from mq.http.app import create_served
from tests.support.analysed_once import analyse_endpoints_once

# Of nobody: botocore would look for credentials in the network.
_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none", "AWS_CONFIG_FILE": "/dev/null"}


async def _know_s3() -> None:
    """Make a client, which asks nobody for anything."""
    settings = S3Settings("none", endpoint_url="http://127.0.0.1:9", region="us-east-1", addressing_style="path")
    connection = S3Connection(settings, on_date=lambda _: None)
    with mock.patch.dict(os.environ, _CREDENTIALS):
        await connection.client()
    await connection.close()


analyse_endpoints_once()
# It is never started, and is gone at once.
create_served(Broker(MemoryStore(), SystemClock(), InProcessCoordinator(), BrokerSettings()))
asyncio.run(_know_s3())
