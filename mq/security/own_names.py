"""The names that a cluster's own tokens may have: none of a principal that is known in another way."""

from filer.errors import InvalidInput

LONGEST = 200
CERTIFICATE, LOCAL_USER = "certificate:", "uid:"
OF_ISSUER = "#"


def check_own_name(name: object) -> str:
    """The name, if a token of the cluster's own, signed or static, may have it. Raises `InvalidInput`.

    Otherwise the maker of such tokens could give them the name of a certificate, of a user of the machine, or of an
    issuer's subject, and so the grants that the policy gives those.
    """
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST or not name.isprintable():
        raise InvalidInput(f"it needs a name, a text of 1 to {LONGEST} printable characters")
    if name.startswith((CERTIFICATE, LOCAL_USER)) or OF_ISSUER in name or "*" in name:
        raise InvalidInput(
            f"{name!r:.210} is no name for a token: names that begin with {CERTIFICATE} or {LOCAL_USER}, or have "
            f"{OF_ISSUER} in them, are of others than the cluster's own tokens, and * stands for many names"
        )
    return name
