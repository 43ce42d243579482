"""Decides which requests are allowed: by the authorizer, and by what a request says of where it comes from."""

from collections.abc import Container

from mq.base.authorizer import Action, AllowLoopback, Authorizer, action_of
from mq.base.errors import Forbidden
from mq.base.internal_topics import why_not_changed
from mq.base.settings import BrokerSettings
from mq.http.web_pages import SAFE_METHODS, Headers, this_machine, why_foreign, why_forwarded


class _Everything(Container[str]):
    def __contains__(self, _: object) -> bool:
        return True


class Guard:
    """Says why a request is not allowed.

    If an address is trusted, so is a web page whose host name an attacker has made to resolve to that address, and
    everybody whose requests a proxy at that address passes on. So more than the address is looked at then.
    """

    def __init__(self, settings: BrokerSettings, authorizer: Authorizer) -> None:
        self._authorizer = authorizer
        self._origins: Container[str] = _Everything() if settings.cors_origin == "*" else settings.cors_origins
        self._trusts_addresses = isinstance(authorizer, AllowLoopback)
        self._names = (
            this_machine(settings.advertise, hosts=(settings.host, *settings.more_hosts))
            if self._trusts_addresses
            else None
        )

    def refusal(self, address: str, method: str, path: str, headers: Headers) -> Forbidden | None:
        """Why the request is not allowed. A web page of another site must not use the rights of its reader."""
        action = action_of(method, path)
        if not self._authorizer.allows(address, action, path):
            return Forbidden(f"this broker does not allow {action} requests from this address")
        safe = method in SAFE_METHODS
        refusal = self._refusal_of_headers(headers, action, safe=safe)
        return refusal if safe or refusal is not None else why_not_changed(path)

    def allows_publish(self, address: str, path: str) -> bool:
        """Whether a publish to a topic's messages is allowed, if `refusal` has found nothing in its headers before."""
        return self._authorizer.allows(address, "publish", path) and why_not_changed(path) is None

    def _refusal_of_headers(self, headers: Headers, action: Action, *, safe: bool) -> Forbidden | None:
        if (why := why_foreign(headers, self._names, safe=safe, origins=self._origins)) is not None:
            return Forbidden(f"this broker does not allow {action} requests of {why}")
        if self._trusts_addresses and (header := why_forwarded(headers)) is not None:
            return Forbidden(
                f"this broker does not allow {action} requests that a proxy has passed on ({header}): it serves only "
                "its own machine, and the address of a proxy says nothing about the proxy's clients. Connect to it "
                "directly, or start it with --authorizer any behind a proxy that knows its clients"
            )
        return None


def refusal_of_broker(headers: Headers) -> Forbidden | None:
    """Why no broker can have sent this: brokers are no web pages.

    They name us as a gateway between us may want it. The cluster's secret, which no page has, is checked later.
    """
    why = why_foreign(headers, None)
    return None if why is None else Forbidden(f"this path is only for the brokers of the cluster, and not for {why}")
