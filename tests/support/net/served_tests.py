"""Notes which tests have had servers in their own process, whose garbage is then collected at their own end.

A connection that is left unclosed is told of when its garbage is collected. By itself that happens in any later test,
which is blamed for it.
"""

import gc

import pytest
from _pytest.unraisableexception import collect_unraisable

_has_served = False


def note_server() -> None:
    """The test that runs has a server in this process."""
    global _has_served
    _has_served = True


def collect_garbage(config: pytest.Config) -> None:
    """If the test that ends had servers, raise what its garbage tells: connections that are left unclosed."""
    global _has_served
    if _has_served:
        _has_served = False
        gc.collect()
        collect_unraisable(config)
