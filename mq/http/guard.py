"""Decides which requests are allowed: by who they are from, and by what they say of where they come from."""

import ipaddress
from collections.abc import Container
from functools import lru_cache
from typing import TYPE_CHECKING

from mq.base.errors import Forbidden, Unauthenticated
from mq.base.internal_topics import why_not_changed
from mq.base.settings import BrokerSettings
from mq.http.web_pages import SAFE_METHODS, Headers, this_machine, why_foreign, why_forwarded
from mq.security.authorization import HOW, authorization_of
from mq.security.grants import Action
from mq.security.needs import need_of
from mq.security.principal import TRUSTED, Principal

if TYPE_CHECKING:
    from mq.security.credentials import Credentials


class _Everything(Container[str]):
    def __contains__(self, _: object) -> bool:
        return True


class Guard:
    """Says whose a request is, and that it is allowed.

    If an address is trusted, so is a web page whose host name an attacker has made to resolve to that address, and
    everybody whose requests a proxy at that address passes on. So more than the address is looked at then.
    """

    def __init__(self, settings: BrokerSettings, credentials: "Credentials | None") -> None:
        self._credentials = credentials
        self._origins: Container[str] = _Everything() if settings.cors_origin == "*" else settings.cors_origins
        self._trusts_addresses = settings.authorizer == "loopback"
        self._names = (
            this_machine(settings.advertise, hosts=(settings.host, *settings.more_hosts))
            if self._trusts_addresses
            else None
        )

    @property
    def asks_for_credentials(self) -> bool:
        """Whether requests are allowed by what they carry, which may end, and not by where they come from."""
        return self._credentials is not None

    def admit(self, address: str, method: str, path: str, headers: Headers) -> Principal:
        """Whose request it is. A web page of another site must not use the rights of its reader.

        Raises `Unauthenticated` if nobody is known by its credential, and `Forbidden` if it is not allowed.
        """
        need = need_of(method, path)
        principal = self._principal(address, need.action, headers)
        if (refusal := principal.refusal(need)) is not None:
            raise refusal
        safe = method in SAFE_METHODS
        self.check_page(headers, need.action, safe=safe)
        if not safe and (refusal := why_not_changed(path)) is not None:
            raise refusal
        return principal

    def allows_publish(self, address: str, path: str, topic: str, authorization: bytes | None) -> bool:
        """Whether a publish to a topic's messages is allowed, if `admit` has found nothing in its headers before."""
        if self._credentials is not None:
            try:
                allowed = authorization is not None and (
                    self._credentials.principal(authorization).grants.allow("publish", topic)
                )
            except Unauthenticated:
                return False
        else:
            allowed = not self._trusts_addresses or _is_this_machine(address)
        return allowed and why_not_changed(path) is None

    def name_of(self, address: str, headers: Headers) -> str:
        """Whose a request is that was not allowed, as far as a good credential tells; empty if there is none."""
        try:
            return self._principal(address, "observe", headers).name
        except (Forbidden, Unauthenticated):
            return ""

    def _principal(self, address: str, action: Action, headers: Headers) -> Principal:
        if self._credentials is not None:
            authorization = authorization_of(headers)
            if authorization is None:
                raise Unauthenticated(f"this broker asks for a token: {HOW}")
            return self._credentials.principal(authorization)
        if self._trusts_addresses and not _is_this_machine(address):
            raise Forbidden(f"this broker does not allow {action} requests from this address")
        return TRUSTED

    def check_page(self, headers: Headers, action: Action, *, safe: bool = False) -> None:
        """Raise `Forbidden` for requests of a foreign web page, or of a proxy for others than this machine's users."""
        if (why := why_foreign(headers, self._names, safe=safe, origins=self._origins)) is not None:
            raise Forbidden(f"this broker does not allow {action} requests of {why}")
        if self._trusts_addresses and (header := why_forwarded(headers)) is not None:
            raise Forbidden(
                f"this broker does not allow {action} requests that a proxy has passed on ({header}): it serves only "
                "its own machine, and the address of a proxy says nothing about the proxy's clients. Connect to it "
                "directly, or start it with --authorizer tokens behind a proxy"
            )


def _is_this_machine(address: str) -> bool:
    """Whether that is a loopback address, or none, as that of a Unix socket."""
    return address == "" or _is_loopback(address)


@lru_cache(maxsize=1024)
def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def refusal_of_broker(headers: Headers) -> Forbidden | None:
    """Why no broker can have sent this: brokers are no web pages.

    They name us as a gateway between us may want it. The cluster's secret, which no page has, is checked later.
    """
    why = why_foreign(headers, None)
    return None if why is None else Forbidden(f"this path is only for the brokers of the cluster, and not for {why}")
