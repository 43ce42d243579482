"""The header that carries the token of a request."""

from collections.abc import Iterable

from filer.errors import Remedy
from mq.base.errors import Unauthenticated

AUTHORIZATION = b"authorization"
SEND_TOKEN = Remedy("send-token")


def authorization_of(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """The value of the header `Authorization`; None without one. Raises `Unauthenticated` if there are several."""
    found = [value for name, value in headers if name == AUTHORIZATION]
    if len(found) > 1:
        raise Unauthenticated("there are several headers Authorization: send one")
    return found[0] if found else None
