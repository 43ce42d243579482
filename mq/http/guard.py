"""Decides which requests are allowed: by their principal, and by the headers that show where they come from."""

from collections.abc import Container
from typing import TYPE_CHECKING

from mq.base.errors import Forbidden, Revoked, Unauthenticated
from mq.base.internal_topics import why_not_changed
from mq.base.settings import BrokerSettings
from mq.http.web_pages import Headers, this_machine, why_foreign, why_forwarded
from mq.machine_users.kernel_users import TELLS_USERS
from mq.security.authorization import SEND_TOKEN, authorization_of
from mq.security.caller import Caller, Credential
from mq.security.grants import Action
from mq.security.local_callers import LocalCallers, name_of_user
from mq.security.needs import Need
from mq.security.principal import TRUSTED, Principal

if TYPE_CHECKING:
    from mq.security.credentials import Credentials


class _Everything(Container[str]):
    def __contains__(self, _: object) -> bool:
        return True


class Guard:
    """Finds the principal of a request, and decides whether the request is allowed.

    If requests are trusted for their address, two more kinds come from there: those of a web page whose host name an
    attacker has made to resolve to that address, and those that a proxy there forwards for any client. So the guard
    then looks at more than the address. A request with a token is trusted for the token alone.
    """

    def __init__(self, settings: BrokerSettings, credentials: "Credentials | None") -> None:
        self._credentials = credentials
        self._origins: Container[str] = _Everything() if settings.cors_origin == "*" else settings.cors_origins
        self._local = LocalCallers(settings, tells_users=TELLS_USERS) if settings.trusts_this_machine else None
        self._names = this_machine(settings.advertise, hosts=(settings.host, *settings.more_hosts))

    @property
    def asks_for_credentials(self) -> bool:
        """Whether requests are allowed by credentials, which may end, and not only by where they come from."""
        return self._credentials is not None

    def admit(self, caller: Caller, need: Need, headers: Headers) -> Principal:
        """The principal of the request. A web page of another site must not use the rights of its reader.

        Raises `Unauthenticated` if no principal has its credential, and `Forbidden` if it is not allowed.
        """
        principal = self._principal(caller, need.action, headers)
        if (refusal := principal.refusal(need)) is not None:
            raise refusal
        self._check_page(headers, need.action, safe=need.effect == "none")
        if need.effect == "change" and (refusal := why_not_changed(need.topic)) is not None:
            raise refusal
        return principal

    def publisher(self, caller: Caller, topic: str, authorization: bytes | None) -> Principal | None:
        """The principal of a publish; None if it may not publish. Only for headers that `admit` has let pass before.

        Without a token it is the trusted principal.
        """
        credential = self._credential(caller, authorization)
        principal = TRUSTED
        if self._credentials is not None and credential is not None:
            try:
                principal = self._credentials.principal(credential)
            except Unauthenticated:
                return None
            allowed = principal.grants.allow("publish", topic)
        elif self._local is not None:
            allowed = self._local.serves(caller)
        else:
            allowed = self._credentials is None
        return principal if allowed and why_not_changed(topic) is None else None

    def _credential(self, caller: Caller, authorization: bytes | None) -> Credential | None:
        """The credential of a request: its token, else the certificate of its connection, if certificates count."""
        if authorization is not None or self._credentials is None or not self._credentials.takes_certificates:
            return authorization
        return caller.certificate

    def name_of(self, caller: Caller, headers: Headers) -> str:
        """The name for a refused request, as far as a good credential or the kernel has it; else empty."""
        try:
            return self._principal(caller, "observe", headers).name
        except Revoked as refusal:
            return refusal.principal
        except Unauthenticated:
            return ""
        except Forbidden:
            return name_of_user(caller)

    def _principal(self, caller: Caller, action: Action, headers: Headers) -> Principal:
        authorization = None if self._credentials is None else authorization_of(headers)
        credential = self._credential(caller, authorization)
        if self._credentials is not None and credential is not None:
            return self._credentials.principal(credential)
        if self._local is not None:
            return self._local.principal(caller, action)
        if self._credentials is not None:
            raise Unauthenticated("this broker asks for a token", SEND_TOKEN)
        return TRUSTED

    def _check_page(self, headers: Headers, action: Action, *, safe: bool) -> None:
        """Raise `Forbidden` for requests of a foreign web page, or of a proxy for clients of other machines."""
        by_place = self._local is not None and (self._credentials is None or authorization_of(headers) is None)
        names = self._names if by_place else None
        if (why := why_foreign(headers, names, safe=safe, origins=self._origins)) is not None:
            raise Forbidden(f"this broker does not allow {action} requests of {why}")
        if by_place and (header := why_forwarded(headers)) is not None:
            raise Forbidden(
                f"this broker does not allow {action} requests that a proxy has passed on ({header}): it serves only "
                "its own machine, and the address of a proxy says nothing about the proxy's clients. Connect to it "
                "directly, or start it with --authorizer tokens behind a proxy"
            )


def refusal_of_broker(headers: Headers) -> Forbidden | None:
    """Why no broker can have sent this: brokers are no web pages.

    Brokers address us by any name that a gateway between us may need. The cluster's secret, which no page has, is
    checked later.
    """
    why = why_foreign(headers, None)
    return None if why is None else Forbidden(f"this path is only for the brokers of the cluster, and not for {why}")
