"""JSON bodies of requests, except those of publishes: small, bounded, and checked by a pydantic model."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from filer.errors import InvalidInput
from filer.nearest import unknown_name
from filer.plain_messages import plain_reason
from filer.strict_settings import field_names
from mq.forms.shallow_json import object_in_steps
from mq.limits.steps import STEP_ROWS, Steps


class JsonBody(BaseModel):
    """A body as an endpoint expects it. `EXAMPLE` is the JSON of a good one, which errors show.

    `WANTED` describes fields for which pydantic's words would not help.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    EXAMPLE: ClassVar[str]
    WANTED: ClassVar[Mapping[str, str]] = {}


M = TypeVar("M", bound=JsonBody)
_UNKNOWN = "extra_forbidden"
"""Pydantic's name for a field that a model does not have."""


def checked_body(document: Mapping[str, Any], model: type[M]) -> M:
    """The document as that body. Raises `InvalidInput` that names the field and the right form."""
    return _checked(document, model, 0)


def _checked(document: Mapping[str, Any], model: type[M], first: int) -> M:
    """As `checked_body`, for a part of a document, whose lists begin with the entry of that number."""
    known = [field.alias or name for name, field in model.model_fields.items()]
    refuse_unknown(document, known)
    try:
        return model.model_validate(document)
    except ValidationError as error:
        found = error.errors(include_url=False)
        # A misspelt name is missing as well, and the error about the misspelling says more.
        each = next((each for each in found if each["type"] == _UNKNOWN), found[0])
        raise InvalidInput(_reason(each, model, document, first)) from error


def checked_in_steps(document: Mapping[str, Any], model: type[M]) -> Steps[M]:
    """As `checked_body`, some of each long list at a time. Reports only the first wrong entry of each list.

    A list of such a model has the same name in the model as in the document.
    """
    lists = {name: value for name, value in document.items() if isinstance(value, list) and len(value) > STEP_ROWS}
    if not lists:
        return checked_body(document, model)
    for name, entries in lists.items():
        if (most := _most_entries(model, name)) is not None and len(entries) > most:
            raise InvalidInput(f"{name}: it has at most {most} items, as in {model.EXAMPLE}")
    checked: dict[str, list[Any]] = {name: [] for name in lists}
    short = {**document, **{name: entries[:1] for name, entries in lists.items()}}
    for name, entries in lists.items():
        for start in range(0, len(entries), STEP_ROWS):
            body = _checked({**short, name: entries[start : start + STEP_ROWS]}, model, start)
            checked[name] += getattr(body, name)
            yield
    return body.model_copy(update=checked)


def _most_entries(model: type[JsonBody], name: str) -> int | None:
    """How many entries a list of a model may have; None if the model sets no bound."""
    field = model.model_fields.get(name)
    bounds = [] if field is None else [getattr(each, "max_length", None) for each in field.metadata]
    return next((each for each in bounds if each is not None), None)


def body_in_steps(body: bytes, model: type[M], most: int) -> Steps[M]:
    """A body as that model, with at most so many entries in each list. Raises as `parse_body`."""
    document = yield from object_in_steps(body or b"{}", model.EXAMPLE, most)
    return (yield from checked_in_steps(document, model))


def refuse_unknown(document: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raise `InvalidInput` for an unknown field, with the known one that may be meant."""
    names = list(known)
    for name in document:
        if name not in names:
            raise InvalidInput(unknown_name("field", name, names))


def _reason(error: ErrorDetails, model: type[JsonBody], document: Mapping[str, Any], first: int) -> str:
    field = str(error["loc"][0])
    if field in model.WANTED:
        return f"'{field}' is {model.WANTED[field]}, not {document.get(field)!r:.80}"
    places = [
        str(part + first if isinstance(part, int) and not index else part)
        for index, part in enumerate(error["loc"], -1)
    ]
    path = ".".join(places)
    if error["type"] == _UNKNOWN:
        within = places[:-1]
        return unknown_name("field", path, [".".join([*within, name]) for name in field_names(model, within)])
    # Pydantic would name a class of ours that clients do not know.
    reason = "an object is wanted" if error["type"] == "model_type" else plain_reason(error)
    # An example without the field would not help.
    return f"{path}: {reason}{f', as in {model.EXAMPLE}' if _shows(model.EXAMPLE, field) else ''}"


def _shows(example: str, field: str) -> bool:
    return f'"{field}":' in example
