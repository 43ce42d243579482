import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filer.errors import InvalidConfig
from filer.topic.topic_config import TopicConfig, parse_config

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from([*TopicConfig.model_fields, "x", "scaling.enabled", ""])


def test_defaults() -> None:
    config = parse_config({})
    assert config == TopicConfig()
    assert [(rule.times_target, rule.for_seconds) for rule in config.scaling.split] == [(5, 120), (2, 300), (1, 600)]
    assert TopicConfig.model_validate_json(config.model_dump_json()) == config


@given(st.dictionaries(NAMES, JSON, max_size=4))
def test_any_input_is_a_configuration_or_a_clear_refusal(settings: dict[str, object]) -> None:
    try:
        config = parse_config(settings)
    except InvalidConfig as error:
        assert 0 < len(str(error)) < 1000
    else:
        assert parse_config(orjson.loads(config.model_dump_json())) == config


def test_objects_are_changed_field_by_field_and_lists_as_a_whole() -> None:
    base = parse_config({"retention": {"seconds": 60}, "scaling": {"merge": {"for_seconds": 5}}})
    rule = {"times_target": 3, "for_seconds": 4}
    changed = parse_config({"retention": {"bytes": 10}, "scaling": {"split": [rule]}}, base=base)
    assert (changed.retention.seconds, changed.retention.bytes) == (60, 10)
    assert (changed.scaling.merge.for_seconds, len(changed.scaling.split)) == (5, 1)
    assert parse_config({"retention": {"seconds": None}}, base=changed).retention.seconds is None


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"segmnets": 3}, "did you mean 'segments'?"),
        ({"overfow": 3}, "did you mean 'overflow'?"),
        ({"target": {"message": 1}}, "did you mean 'target.messages'?"),
        ({"scaling": {"split": [{"for_second": 1}]}}, "scaling.split"),
        ({"zzzzzz": 3}, "known are acks, "),
        ({"x" * 10**6: 1}, "unknown setting 'xxx"),
        ({"replicas": "2"}, "replicas: "),
        ({"replicas": 2.5}, "replicas: "),
        ({"replicas": True}, "replicas: "),
        ({"scaling": {"enabled": 1}}, "scaling.enabled: "),
        ({"min_segments": 5, "max_segments": 3}, "min_segments (5) is above max_segments (3)"),
        ({"acks": "replicated"}, "needs replicas of 2 or more"),
        ({"scaling": {"merge": {"times_target": 0.8}}}, "merge.times_target (0.8) must be at most 0.75 of the lowest"),
        ({"scaling": {"split": [{"times_target": 0.5, "for_seconds": 1}]}}, "times_target of split (0.5)"),
    ],
)
def test_refusals_say_what_would_be_right(settings: dict[str, object], part: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse_config(settings)
    assert part in str(caught.value)
    assert len(str(caught.value)) < 600
