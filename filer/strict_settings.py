"""Merges settings that users give as JSON into others, and explains in one sentence what is wrong with them."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args

import orjson
from pydantic import BaseModel, ValidationError

from filer.errors import InvalidConfig
from filer.nearest import unknown_name
from filer.plain_messages import plain_reason

Settings = TypeVar("Settings", bound=BaseModel)


def merged_settings(
    base: Settings, given: Mapping[str, Any], *, what: str = "setting", beside: Sequence[str] = ()
) -> Settings:
    """The settings `base` with the given ones; objects are merged field by field.

    `beside`: names that may stand beside the settings, and that are ignored here. Raises `InvalidConfig`, which names
    the first wrong setting, and the nearest known one if it is unknown.
    """
    if not given:
        return base
    model, merged = type(base), _overlay(base.model_dump(), given)
    try:
        # Validated as JSON: strict validation, which refuses "3" or true for a number, would demand tuples in Python
        # objects.
        return model.model_validate_json(orjson.dumps(merged), strict=True)
    except ValidationError as error:
        raise InvalidConfig(_explain(error, model, what, beside)) from error
    except TypeError as error:
        raise InvalidConfig(f"the settings cannot be written as JSON: {error}") from error


def _overlay(base: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in given.items():
        below = merged.get(name)
        merged[name] = _overlay(below, value) if isinstance(below, dict) and isinstance(value, Mapping) else value
    return merged


def _explain(error: ValidationError, model: type[BaseModel], what: str, beside: Sequence[str]) -> str:
    first = error.errors(include_url=False)[0]
    path = [str(name) for name in first["loc"]]
    if first["type"] == "extra_forbidden":
        known = [".".join([*path[:-1], name]) for name in field_names(model, path[:-1])]
        return unknown_name(what, ".".join(path), [*known, *(() if path[:-1] else beside)])
    setting = ".".join(path)
    message = plain_reason(first)
    return f"{setting}: {message}" if setting else message


def field_names(model: type[BaseModel], path: Sequence[str]) -> list[str]:
    """The names of the fields in the object at `path`, as they are written in JSON."""
    for name in path:
        if not name.isdigit():
            model = _model_of(model.model_fields[name].annotation)
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_of(annotation: Any) -> type[BaseModel]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(found for each in get_args(annotation) if each is not Ellipsis and (found := _model_of(each)))
