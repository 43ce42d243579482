"""The check of a JSON record: a digest in the record itself that shows damage to it.

A record begins with the member `check`: the XXH3-128 digest, in 32 lower-case hexadecimal digits, of the record without
it as canonical JSON (sorted keys, no white space, UTF-8). docs/file-format.md says how to compute it without BraidMQ.

Brokers of earlier versions wrote no check. They keep members that they do not know and write them behind their own. So
a record that such a broker has changed may carry the check of the record before it, but not in the first place. Only a
check in the first place counts; one elsewhere is dropped. And a record without a check begins with the member with
which those versions begin it. So no damage to one bit of a checked record makes it look like one without a check.
"""

from collections.abc import Mapping
from typing import Any

import orjson
import xxhash

from filer.errors import CorruptFile

CHECK = "check"


def digest_of(content: Mapping[str, Any]) -> str:
    """The digest of a record's content without its check."""
    return xxhash.xxh3_128_hexdigest(orjson.dumps(content, option=orjson.OPT_SORT_KEYS))


def with_check(data: bytes) -> bytes:
    """The bytes of a JSON object, which is not empty, with its check in the first place."""
    return b'{\n "%s": "%s",%s' % (CHECK.encode(), digest_of(orjson.loads(data)).encode(), data[1:])


def checked(data: bytes, *, key: str, first: str) -> tuple[dict[str, Any], str]:
    """The content of a record without its check, and the content's digest.

    `first` is the member with which a record without a check begins. Raises `CorruptFile` with `key` if the bytes are
    no JSON object, do not fit the check, or begin with anything else.
    """
    try:
        content = orjson.loads(data)
    except ValueError as error:
        raise CorruptFile(f"{key} is damaged: it is not JSON ({error})", key=key) from error
    begins_with = next(iter(content), None) if isinstance(content, dict) else None
    if begins_with not in (CHECK, first):
        raise CorruptFile(f"{key} is damaged: it begins neither with its check nor with {first!r}", key=key)
    told = content.pop(CHECK, None)
    digest = digest_of(content)
    if begins_with == CHECK and told != digest:
        raise CorruptFile(f"{key} is damaged: its content does not fit its check", key=key)
    return content, digest
