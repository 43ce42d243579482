"""The access control of a broker, as its settings say.

If the broker asks for no tokens, nothing that checks them is imported: that would take 16 MiB, and a tenth of a second
of each start.
"""

from collections.abc import Callable

from filer.clock import Clock
from filer.stores.store import Store
from mq.base.settings import BrokerSettings
from mq.security.open_access import OpenAccess


def access_of(
    settings: BrokerSettings, clock: Clock, store: Store, on_policy_failure: Callable[[], None] = lambda: None
) -> OpenAccess:
    """The access that the settings ask for. `on_policy_failure` is called when the store's policy cannot be used."""
    if not settings.takes_tokens:
        return OpenAccess(None, clock)
    from mq.security.token_access import TokenAccess

    return TokenAccess(settings, clock, store, on_policy_failure)
