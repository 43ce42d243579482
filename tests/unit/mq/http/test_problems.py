"""Errors about single objects are told with the object's name, and with where reading can go on."""

import pickle

import orjson
import pytest

from filer.errors import CorruptFile, DataMissing, UnreadableObject
from mq.http.problems import problem_of


@pytest.mark.parametrize(("kind", "slug"), [(DataMissing, "data-missing"), (CorruptFile, "data-damaged")])
def test_an_unreadable_object_is_named(kind: type[UnreadableObject], slug: str) -> None:
    error = kind("it cannot be read", key="topics/t/segments/segment=1/x.parquet", segment=1, offset=2, next_offset=3)
    error.next_marker = "behind"
    told = orjson.loads(problem_of(error).body())
    assert (told["type"], told["status"], told["retryable"]) == (f"urn:braidmq:{slug}", 503, False)
    assert (told["key"], told["segment"], told["offset"]) == ("topics/t/segments/segment=1/x.parquet", 1, 2)
    assert (told["next_offset"], told["next"]) == (3, "behind")


def test_what_is_not_known_is_left_out() -> None:
    told = orjson.loads(problem_of(CorruptFile("not a Parquet file")).body())
    assert told.keys() == {"type", "title", "status", "detail", "retryable"}


def test_the_names_survive_the_way_to_another_process() -> None:
    again = pickle.loads(pickle.dumps(DataMissing("gone", key="k", segment=0, offset=2, next_offset=3)))
    assert (str(again), again.key, again.segment, again.offset, again.next_offset) == ("gone", "k", 0, 2, 3)
