"""The components of the document: a JSON schema of each model, by its name."""

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, models_json_schema
from pydantic_core import core_schema

from mq.http.openapi.answer import Absent, Answer

Schema = dict[str, Any]
PLACE = "#/components/schemas/"


class _Schemas(GenerateJsonSchema):
    """Of fields, and of models that another model is made of. A default that means that a field may be missing is none.

    Pydantic also makes a title of each name, which says nothing.
    """

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Never."""
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> Schema:
        """The schema of a field with a default."""
        if isinstance(schema.get("default"), Absent):
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)


class _AnswerSchemas(_Schemas):
    """A field of an answer is there, also with its default, unless it may be missing."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> Schema:
        """The schema, without the default: the answer has the value."""
        return self.generate_inner(schema["schema"])

    def field_is_required(self, field: Any, total: bool) -> bool:
        """Whether it is always there."""
        return not isinstance(field["schema"].get("default"), Absent)


def components(models: Iterable[type[BaseModel]]) -> dict[str, Schema]:
    """The schemas of the models, and of all that they are made of.

    What answers have in full, and requests in part, is two schemas: that of requests is called `Partial…`. Clients
    tolerate new fields of answers, so no schema of an answer forbids others.
    """
    chosen = sorted(set(models), key=lambda model: model.__name__)
    answered = _schemas([each for each in chosen if issubclass(each, Answer)], _AnswerSchemas)
    answers = {name: _open(schema) for name, schema in answered.items()}
    bodies = _schemas([each for each in chosen if not issubclass(each, Answer)], _Schemas)
    partial = {name for name, schema in bodies.items() if name in answers and answers[name] != _open(schema)}
    renamed = {f"{PLACE}{name}": f"{PLACE}Partial{name}" for name in partial}
    named = {f"Partial{name}" if name in partial else name: schema for name, schema in bodies.items()}
    return dict(sorted({**{name: _renamed(schema, renamed) for name, schema in named.items()}, **answers}.items()))


def reference(model: type[BaseModel]) -> Schema:
    """The schema of a model, by its name."""
    return {"$ref": PLACE + model.__name__}


def plain(schema: Any) -> Any:
    """The same schema as generators of clients read it best.

    Names of fields are no titles. Numbers are of 64 bits. A type that may be null is a list of types. A default is in
    the description: with one, generators take it that requests always have the field.
    """
    if isinstance(schema, list):
        return [plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: plain(each) for name, each in schema.items() if name != "title" or not isinstance(each, str)}
    if made.get("type") == "number":
        made["format"] = "double"
    return _default_told(_null_as_type(made))


def _schemas(models: list[type[BaseModel]], generator: type[GenerateJsonSchema]) -> dict[str, Schema]:
    _, made = models_json_schema(
        [(model, "validation") for model in models], ref_template=PLACE + "{model}", schema_generator=generator
    )
    return {name: plain(schema) for name, schema in made.get("$defs", {}).items()}


def _open(schema: Schema) -> Schema:
    """The schema of an object that may have other fields."""
    return {name: each for name, each in schema.items() if name != "additionalProperties" or each is not False}


def _null_as_type(schema: Schema) -> Schema:
    """`anyOf: [X, null]` as X with two types, unless X is a reference."""
    kinds: list[Schema] = schema.get("anyOf", [])
    if len(kinds) != 2 or kinds[1] != {"type": "null"} or "type" not in kinds[0]:
        return schema
    kind = kinds[0]
    values = {"enum": [*kind["enum"], None]} if "enum" in kind else {}
    rest = {name: each for name, each in schema.items() if name != "anyOf"}
    return {**kind, "type": [kind["type"], "null"], **values, **rest}


def _default_told(schema: Schema) -> Schema:
    default = schema.pop("default", None) if "type" in schema or "$ref" in schema or "anyOf" in schema else None
    if not isinstance(default, bool | int | float | str) or default == "":
        return schema
    shown = str(default).lower() if isinstance(default, bool) else default
    said = schema.get("description", "")
    return {**schema, "description": f"{said}{' ' if said else ''}Default: {shown}."}


def _renamed(schema: Any, renamed: dict[str, str]) -> Any:
    if isinstance(schema, list):
        return [_renamed(each, renamed) for each in schema]
    if isinstance(schema, dict):
        return {name: _renamed(each, renamed) for name, each in schema.items()}
    return renamed.get(schema, schema) if isinstance(schema, str) else schema
