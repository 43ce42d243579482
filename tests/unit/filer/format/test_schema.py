"""What the messages of topics are: one object for each kind, which a process gets back from another as its own."""

import copy
import pickle

import pytest

from filer.format.schema import TOPIC_FIELD, KeyType, MessageSchema, ValueType


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("key_type", ["binary", "string"])
@pytest.mark.parametrize("value_type", ["binary", "string", "json"])
def test_a_kind_of_topic_has_one_schema(key_type: KeyType, value_type: ValueType, grouped: bool) -> None:
    schema = MessageSchema.of(key_type, value_type, grouped=grouped)
    assert schema is MessageSchema.of(key_type, value_type, grouped=grouped)
    assert schema is pickle.loads(pickle.dumps(schema)) is copy.deepcopy(schema)
    assert schema.id == MessageSchema.of(key_type, value_type).id == f"{key_type}/{value_type}"
    assert schema.rows.names == [*schema.published.names, *([TOPIC_FIELD.name] if grouped else [])]
    assert schema.log.names == ["_offset", "_timestamp", *schema.rows.names]
