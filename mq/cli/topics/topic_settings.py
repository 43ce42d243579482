"""Convert settings of a topic between command-line arguments and the nested form that brokers take."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson
import typer


def gather(overrides: Iterable[str], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Build one nested object from `key=value` arguments and from flags by dotted key. A flag of `None` is not given.

    A value is JSON if it parses as JSON, or else text. Flags override `key=value`. Raises `typer.BadParameter`.
    """
    config: dict[str, Any] = {}
    for word in overrides:
        key, sign, value = word.partition("=")
        if not sign or not all(key.split(".")):
            raise typer.BadParameter(f"{word!r} does not have the form key=value", param_hint="--set")
        _put(config, key, _value(value))
    for key, given in flags.items():
        if given is not None:
            _put(config, key, given)
    return config


def flatten(config: Mapping[str, Any], *, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted key and the value of each setting, as `gather` takes them."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from flatten(value, prefix=f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _value(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _put(config: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.split(".")
    parent = config
    for part in path:
        parent = parent.setdefault(part, {})
        if not isinstance(parent, dict):
            raise typer.BadParameter(f"{key!r} is inside a value that is not an object", param_hint="--set")
    parent[last] = value
