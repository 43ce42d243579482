"""Convert settings of a topic between command-line arguments and the nested form that brokers take."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import orjson
import typer

from filer.quantities import parse_duration_seconds, parse_size_bytes


def gather(overrides: Iterable[str], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Build one nested object from `key=value` arguments and from flags by dotted key. A flag of `None` is not given.

    A value is JSON if it parses as JSON. Else it is a size if the name of the setting ends in `bytes`, a duration if it
    ends in `seconds`, or text. Flags override `key=value`. Raises `typer.BadParameter`.
    """
    config: dict[str, Any] = {}
    for word in overrides:
        key, sign, value = word.partition("=")
        if not sign or not all(key.split(".")):
            raise typer.BadParameter(f"{word!r} does not have the form key=value", param_hint="--set")
        _put(config, key, _value(key, value))
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


def _value(key: str, text: str) -> Any:
    with suppress(orjson.JSONDecodeError):
        return orjson.loads(text)
    parse = _parser_of(key)
    if parse is None:
        return text
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(f"{key}: {error}, not {text!r}", param_hint="--set") from error


def _parser_of(key: str) -> Callable[[str], float] | None:
    """The parser for the value of a setting, if the setting's name shows that it counts bytes or seconds."""
    unit = re.split(r"[._]", key)[-1]
    return {"bytes": parse_size_bytes, "seconds": parse_duration_seconds}.get(unit)


def _put(config: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.split(".")
    parent = config
    for part in path:
        parent = parent.setdefault(part, {})
        if not isinstance(parent, dict):
            raise typer.BadParameter(f"{key!r} is inside a value that is not an object", param_hint="--set")
    parent[last] = value
