"""Stores that wrap another store and change some of its calls.

Begin with `forwarding_store.py`, from which the others inherit. `RetryingStore` repeats reads that failed,
`InstrumentedStore` counts calls in `StoreMetrics`, `PacedStore` bounds the rate of reads. `FailingStore` is for tests
and simulation: it fails as a plan of `faults.py` says.
"""
