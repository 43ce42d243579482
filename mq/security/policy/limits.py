"""How much of a broker the requests of one principal may take."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from filer.errors import InvalidInput

MOST = 2**53


@dataclass(frozen=True, slots=True)
class Limits:
    """What is not limited is None. Each broker counts for itself."""

    requests_per_second: int | None = None
    publish_bytes_per_second: int | None = None
    read_bytes_per_second: int | None = None
    streams: int | None = None
    topics_per_hour: int | None = None

    def given(self) -> dict[str, int]:
        """Those that are limited."""
        return {name: value for name, value in asdict(self).items() if value is not None}


LIMITS = tuple(Limits.__dataclass_fields__)


def limits_of(given: Mapping[str, Any]) -> Limits:
    """The limits among these fields. Raises `InvalidInput` for one that cannot be, and if there is none."""
    found = {name: given[name] for name in LIMITS if name in given}
    for name, value in found.items():
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST:
            raise InvalidInput(f"{name} is a whole number from 1 on, not {value!r:.80}")
    if not found:
        raise InvalidInput(f"it limits nothing: give it {', '.join(LIMITS)}, or one of them")
    return Limits(**found)
