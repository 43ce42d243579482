"""Reads the schema of JSON values from a file: of a Parquet file, or JSON with the types of Spark."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.errors import JobFailed

_SIMPLE = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_IN_SQL = {"bool": "boolean", "tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}
# Of the day. Spark writes how many digits of a second it keeps.
_TIME = re.compile(r"time(\([0-6]\))?")
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_MOST_DIGITS = 38
_FORMS = (
    f"give {', '.join(_SIMPLE)}, time, decimal(P,S), or an object as in Spark's df.schema.json(): "
    '{"type": "array", "elementType": …}, {"type": "map", "keyType": …, "valueType": …}, '
    '{"type": "struct", "fields": […]}'
)


def read_schema(path: str) -> pa.Schema:
    """Return the fields of the values. Raises `JobFailed` if the file cannot be read, or has an unknown type.

    A file or folder of Parquet has the schema of its table. Any other file is JSON: the result of Spark's
    `df.schema.json()`, or an object with the type of each field, `{"carrier": "string", "fare": "decimal(10,2)"}`.
    """
    # Late: it imports pandas, and few exports have a schema.
    import pyarrow.dataset as ds

    if not Path(path).exists():
        raise JobFailed(f"--schema: there is no file or folder {path}")
    try:
        if path.endswith(".parquet") or Path(path).is_dir():
            return ds.dataset(path, format="parquet").schema.remove_metadata()
        document = json.loads(Path(path).read_bytes())
    except (OSError, ValueError, pa.ArrowException) as error:
        raise JobFailed(f"--schema: {path} is neither Parquet nor JSON that can be read: {error}") from error
    try:
        return schema_of(document)
    except ValueError as error:
        raise JobFailed(f"--schema: {path}: {error}") from error


def schema_of(document: Any) -> pa.Schema:
    """Return the schema in a JSON document. Raises `ValueError`, which says what would be right."""
    if isinstance(document, dict) and document.get("type") == "struct":
        return pa.schema(list(_type(document, "the schema")))
    if not isinstance(document, dict) or not document:
        raise ValueError("it is not an object with the type of each field, nor Spark's df.schema.json()")
    return pa.schema([pa.field(name, _type(each, f"field {name!r}")) for name, each in document.items()])


def _type(given: Any, where: str) -> pa.DataType:
    if isinstance(given, str):
        name = _IN_SQL.get(given.lower(), given.lower())
        if name in _SIMPLE:
            return _SIMPLE[name]
        if (digits := _DECIMAL.fullmatch(name)) and 1 <= int(digits[1]) <= _MOST_DIGITS:
            return pa.decimal128(int(digits[1]), int(digits[2]))
        if _TIME.fullmatch(name):
            return pa.time64("us")
    elif isinstance(given, dict):
        kind = given.get("type")
        if kind == "array":
            element = _type(given.get("elementType"), f"{where}[]")
            return pa.list_(pa.field("element", element, nullable=given.get("containsNull", True)))
        if kind == "map":
            value = _type(given.get("valueType"), f"the values of {where}")
            key = pa.field("key", _type(given.get("keyType"), f"the keys of {where}"), nullable=False)
            return pa.map_(key, pa.field("value", value, nullable=given.get("valueContainsNull", True)))
        if kind == "struct" and isinstance(given.get("fields"), list):
            return pa.struct([_field(each, where) for each in given["fields"]])
    raise ValueError(f"{where} has the type {json.dumps(given)}, which there is not: {_FORMS}")


def _field(given: Any, where: str) -> pa.Field:
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise ValueError(f"{where} has a field without a name: {json.dumps(given)}")
    name = given["name"]
    return pa.field(name, _type(given.get("type"), f"field {name!r}"), nullable=given.get("nullable", True))
