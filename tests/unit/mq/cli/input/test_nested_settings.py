import pytest
import typer

from filer.topic.topic_config import TopicConfig, parse_config
from mq.cli.input.nested_settings import flatten, gather


def test_values_are_json_where_they_parse_and_text_elsewhere() -> None:
    words = ["a=1", "b=true", "c=null", "d=drop_oldest", 'e={"f":[1]}', "g.h.i=x=y", "g.j="]
    assert gather(words, {}) == {
        "a": 1, "b": True, "c": None, "d": "drop_oldest", "e": {"f": [1]}, "g": {"h": {"i": "x=y"}, "j": ""},
    }  # fmt: skip


def test_flags_count_more_and_none_is_not_given() -> None:
    flags = {"retention.seconds": 5, "retention.bytes": None, "segments": 2}
    assert gather(["retention.seconds=1", "retention.bytes=7"], flags) == {
        "retention": {"seconds": 5, "bytes": 7},
        "segments": 2,
    }


def test_sizes_and_durations_have_units() -> None:
    words = ["rollup_bytes=64MiB", "retention.bytes=1GB", "retention.seconds=7d", "scaling.cooldown_seconds=10m"]
    config = gather(words, {})
    assert config == {
        "rollup_bytes": 64 * 1024 * 1024,
        "retention": {"bytes": 10**9, "seconds": 604_800},
        "scaling": {"cooldown_seconds": 600},
    }
    assert parse_config(config).rollup_bytes == 64 * 1024 * 1024


@pytest.mark.parametrize(
    ("word", "message"), [("rollup_bytes=64M", "powers of 1024"), ("retention.seconds=soon", "1h30m, not 'soon'")]
)
def test_bad_sizes_and_durations_are_told(word: str, message: str) -> None:
    with pytest.raises(typer.BadParameter, match=message):
        gather([word], {})


@pytest.mark.parametrize("word", ["a", "=1", "a.=1", ".a=1", "a..b=1"])
def test_words_of_another_form_are_refused(word: str) -> None:
    with pytest.raises(typer.BadParameter, match="key=value"):
        gather([word], {})


def test_what_is_flattened_can_be_gathered_again() -> None:
    config = TopicConfig(segment_bytes=5000).model_dump(mode="json")
    again = gather([], dict(flatten(config)))
    assert parse_config({name: value for name, value in again.items() if value != {}}) == TopicConfig(
        segment_bytes=5000
    )
