"""What `mq publish --dry-run` prints: how many messages would be stored, and the first ones as they would be."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mq.cli.output import print_json, print_lines, print_table

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_SHOWN = 3
_SHOWN_CHARACTERS = 100


class PublishPreview:
    """Adds up the messages that would be published."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._messages = self._value_bytes = 0
        self._first: list[tuple[str | None, str | None]] = []

    def add_values(self, key: bytes | None, values: Sequence[bytes]) -> None:
        """Count messages of these values, all of one key."""
        self._messages += len(values)
        self._value_bytes += sum(map(len, values))
        self._first += [(_text(key), _text(value)) for value in values[: _MOST_SHOWN - len(self._first)]]

    def add(self, messages: "pa.Table") -> None:
        """Count messages, which have at least the columns `key` and `value`."""
        import pyarrow.compute as pc

        self._messages += messages.num_rows
        self._value_bytes += pc.sum(pc.binary_length(messages["value"])).as_py() or 0
        first = messages.slice(0, _MOST_SHOWN - len(self._first))
        keys, values = first["key"].to_pylist(), first["value"].to_pylist()
        self._first += [(_text(key), _text(value)) for key, value in zip(keys, values, strict=True)]

    def add_whole(self, name: str, key: bytes | None) -> None:
        """Count a file that would be one message."""
        self._messages += 1
        size_bytes = Path(name).stat().st_size
        self._value_bytes += size_bytes
        if len(self._first) < _MOST_SHOWN:
            self._first.append((_text(key), f"({size_bytes:,} bytes of {name})"))

    def show(self, *, as_json: bool) -> None:
        """Print it, as JSON or as text and a table."""
        if as_json:
            first = [{"key": key, "value": value} for key, value in self._first]
            sizes = {"messages": self._messages, "bytes": self._value_bytes}
            print_json({"dry_run": True, "topic": self._topic, **sizes, "first": first})
            return
        what = "message" if self._messages == 1 else "messages"
        print_lines(
            f"would publish {self._messages:,} {what} with {self._value_bytes:,} bytes of values to {self._topic}"
        )
        if self._first:
            print_table(("key", "value"), ((_short(key), _short(value)) for key, value in self._first))


def _text(value: bytes | str | None) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _short(text: str | None) -> str:
    if text is None:
        return "null"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
