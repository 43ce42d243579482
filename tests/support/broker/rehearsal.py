"""What takes a broker long when it does it first: who forks brokers imports this, and none of them has to do it.

FastAPI looks at the parameters of all endpoints, and what it finds is kept.
"""

from filer.clock import SystemClock
from filer.stores.memory_store import MemoryStore
from leader.membership.coordinator import InProcessCoordinator
from mq.base.settings import BrokerSettings
from mq.broker import Broker
from mq.http.app import create_served
from tests.support.analysed_once import analyse_endpoints_once

analyse_endpoints_once()
# It is never started, and is gone at once.
create_served(Broker(MemoryStore(), SystemClock(), InProcessCoordinator(), BrokerSettings()))
