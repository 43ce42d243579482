"""Which keys a store takes: the same rule for every backend, so that no key can escape a local root."""

import re

from filer.errors import StoreRefused

_PART = r"[^./\0][^/\0]*"
_KEY = re.compile(rf"(?:{_PART}/)*{_PART}\Z")
_PREFIX = re.compile(rf"(?:{_PART}/)*(?:{_PART})?\Z")
_RULE = "parts separated by single '/', none empty, none beginning with a dot, no NUL, valid as UTF-8"


def check_key(key: str) -> str:
    """The key itself where a store may take it; raises `StoreRefused` otherwise."""
    if not _KEY.match(key) or not _encodes(key):
        raise StoreRefused(f"{key[:200]!r} is no object key: keys are {_RULE}")
    return key


def check_prefix(prefix: str) -> str:
    """The prefix itself where keys may begin with it (its last part may be partial or empty).

    Raises `StoreRefused` otherwise.
    """
    if not _PREFIX.match(prefix) or not _encodes(prefix):
        raise StoreRefused(f"{prefix[:200]!r} is no prefix of object keys: keys are {_RULE}")
    return prefix


def check_folder(prefix: str) -> str:
    """The prefix itself where it is empty or ends in `/`; raises `StoreRefused` otherwise."""
    if prefix and not prefix.endswith("/"):
        raise StoreRefused(f"{prefix[:200]!r} is no folder: it must end in '/'")
    return check_prefix(prefix)


def _encodes(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
