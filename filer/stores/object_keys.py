"""The keys that a store accepts. All stores share one rule, by which no key can leave a local store's root."""

import re

from filer.errors import KeyRefused

_PART = r"[^./\0][^/\0]*"
_KEY = re.compile(rf"(?:{_PART}/)*{_PART}\Z")
_PREFIX = re.compile(rf"(?:{_PART}/)*(?:{_PART})?\Z")
_RULE = "parts separated by single '/', none empty, none beginning with a dot, no NUL, valid as UTF-8"


def check_key(key: str) -> str:
    """The key itself if a store accepts it. Raises `KeyRefused` otherwise."""
    if not _KEY.match(key) or not _encodes(key):
        raise KeyRefused(f"{key[:200]!r} is not an object key: a key has {_RULE}")
    return key


def check_prefix(prefix: str) -> str:
    """The prefix itself if keys can begin with it. Its last part may be incomplete or empty.

    Raises `KeyRefused` otherwise.
    """
    if not _PREFIX.match(prefix) or not _encodes(prefix):
        raise KeyRefused(f"{prefix[:200]!r} is no prefix of object keys: a key has {_RULE}")
    return prefix


def check_folder(prefix: str) -> str:
    """The prefix itself if it is empty or ends in `/`. Raises `KeyRefused` otherwise."""
    if prefix and not prefix.endswith("/"):
        raise KeyRefused(f"{prefix[:200]!r} is not a folder: it must end in '/'")
    return check_prefix(prefix)


def _encodes(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
