"""What is wrong with the body of a request about a group is said in words for people, and shows what is right."""

from typing import Any

import pytest

from filer.errors import InvalidInput
from mq.forms import group_bodies
from mq.forms.group_bodies import (
    AckBody,
    ClaimBody,
    CommitBody,
    ExtensionBody,
    LetGoBody,
    RedriveBody,
    ReleaseBody,
)
from mq.forms.json_form import JsonBody, checked_body

BODIES: list[type[JsonBody]] = [
    each for each in vars(group_bodies).values() if isinstance(each, type) and JsonBody in each.__mro__[1:]
]
WRONG: list[Any] = [None, True, "x", "x" * 10_000, "", -1, 2**63, 0.5, float("inf"), [], [1], ["x"] * 10_001, {}, [{}]]
NAMES_OF_A_PROGRAM = (
    "input should",
    "string should",
    "list should",
    "field required",
    "not permitted",
    "validation",
    "valid dictionary",
    "pattern",
    "instance of",
    "parse",
)


def refused(body: type[JsonBody], document: dict[str, Any]) -> str:
    with pytest.raises(InvalidInput) as caught:
        checked_body(document, body)
    return str(caught.value)


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_nothing_is_refused_in_the_words_of_a_program(body: type[JsonBody]) -> None:
    told: list[str] = []
    for name, field in body.model_fields.items():
        for value in WRONG:
            try:
                checked_body({field.alias or name: value}, body)
            except InvalidInput as error:
                told.append(str(error))
    assert told
    assert [each for each in told if any(words in each.lower() for words in NAMES_OF_A_PROGRAM)] == []


@pytest.mark.parametrize(
    ("body", "document", "says"),
    [
        (ClaimBody, {"lease_seconds": 0}, "lease_seconds: it must be at least 1, not 0"),
        (ClaimBody, {"max": 0}, 'max: it must be at least 1, not 0, as in {"max": 100, "wait": 20}'),
        (ClaimBody, {"scattered": "yes"}, "scattered: it must be true or false"),
        (AckBody, {}, 'messages: it is missing, as in {"messages": [{"claim": "…", "id": "0-17"}]}'),
        (AckBody, {"messages": [{}]}, 'messages.0.claim: it is missing, as in {"messages": [{"claim": "…", "id"'),
        (AckBody, {"messages": [5]}, 'messages.0: an object is wanted, as in {"messages"'),
        (
            AckBody,
            {"messages": [{"claim": "x", "form": 1}]},
            "unknown field 'messages.0.form': did you mean 'messages.0.from'?",
        ),
        (ReleaseBody, {"messages": [{"claim": "x"}], "reason": "x" * 501}, "reason: it has at most 500 characters"),
        (
            ExtensionBody,
            {"messages": [{"claim": "x"}], "lease_seconds": -1},
            "lease_seconds: it must be at least 1, not -1",
        ),
        (RedriveBody, {"ids": ["7"]}, "ids.0: it must be the id of a message, such as 0-17, not '7'"),
        (CommitBody, {"member_id": "a", "positions": [{"segment": 0, "epoch": 1}]}, "positions.0.position: it is"),
        (LetGoBody, {"let_go": [{"segment": 0}]}, 'let_go.0.epoch: it is missing, as in {"let_go": [{"segment": 0'),
    ],
)
def test_what_is_right_is_shown(body: type[JsonBody], document: dict[str, Any], says: str) -> None:
    assert refused(body, document).startswith(says)


def test_no_example_of_other_fields_is_shown() -> None:
    assert refused(ClaimBody, {"lease_seconds": 0}) == "lease_seconds: it must be at least 1, not 0"
