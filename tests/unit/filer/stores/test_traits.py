"""A store tells its traits, and decorators pass them on."""

import pytest

from filer.clock import ManualClock
from filer.stores.decorators.failing_store import FailingStore
from filer.stores.decorators.faults import ScriptedFaults
from filer.stores.decorators.instrumented_store import InstrumentedStore
from filer.stores.decorators.retrying_store import RetryingStore
from filer.stores.decorators.store_metrics import StoreMetrics
from filer.stores.memory_store import MemoryStore
from filer.stores.s3.s3_settings import S3Settings
from filer.stores.s3.s3_store import S3Store
from filer.stores.store import Store


@pytest.mark.parametrize(
    ("store", "billed"),
    [
        pytest.param(MemoryStore(clock=ManualClock()), False, id="memory"),
        pytest.param(S3Store(S3Settings("bucket"), clock=ManualClock()), True, id="s3"),
    ],
)
def test_decorators_pass_on_the_traits_of_the_store_within(store: Store, billed: bool) -> None:
    clock = ManualClock()
    counted = InstrumentedStore(FailingStore(store, ScriptedFaults(), clock=clock), clock=clock, metrics=StoreMetrics())
    assert RetryingStore(counted, clock=clock).traits == store.traits
    assert store.traits.puts_are_billed is billed
    assert (store.traits.puts_at_once > 1) is billed
