"""Topics' records that are wrong, and may be met twice: by themselves, and with a topic group that names them."""

from filer import keys


class WrongRecords:
    """Knows which records were reported."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def is_known(self, key: str) -> bool:
        """Whether the object is the record of a topic, and was asked for before."""
        name = keys.topic_of(key)
        if name is None or key != keys.topic(name):
            return False
        is_known = key in self._told
        self._told.add(key)
        return is_known
