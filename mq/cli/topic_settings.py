"""Settings of a topic from command-line words to the nested form that brokers take."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson
import typer


def gather(overrides: Iterable[str], flags: Mapping[str, Any]) -> dict[str, Any]:
    """One nested object from `key=value` words and from flags by their dotted key; None is "not given".

    A value is JSON where it parses, else text. Flags count more. Raises `typer.BadParameter`.
    """
    config: dict[str, Any] = {}
    for word in overrides:
        key, sign, value = word.partition("=")
        if not sign or not all(key.split(".")):
            raise typer.BadParameter(f"{word!r} is not of the form key=value", param_hint="--set")
        _put(config, key, _value(value))
    for key, given in flags.items():
        if given is not None:
            _put(config, key, given)
    return config


def flatten(config: Mapping[str, Any], *, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted key and the value of each setting, as `gather` takes them."""
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
    place = config
    for part in path:
        place = place.setdefault(part, {})
        if not isinstance(place, dict):
            raise typer.BadParameter(f"{key!r} is set within a value that is no object", param_hint="--set")
    place[last] = value
