"""Pydantic's error messages in plain words, for the people who typed the value."""

import re

from pydantic_core import ErrorDetails

_WORDS = (
    (r"value error, ", ""),
    (r"input should be a valid integer(, (unable|got) .*)?", "it must be a whole number"),
    (r"input should be a valid number(, unable to parse string as a number)?", "it must be a number"),
    (r"input should be a finite number", "it must be a finite number"),
    (r"input should be a valid boolean(, .*)?", "it must be true or false"),
    (r"input should be a valid string", "it must be a string"),
    (r"input should be a valid (list|array|tuple)", "it must be a list"),
    (r"input should be a valid dictionary( or .*)?", "it must be an object"),
    (r"(list|tuple|array) should have at (least|most) (\S+) (items?) after validation, not .*", r"it has at \2 \3 \4"),
    (r"string should have at (least|most) (\S+) (characters?)", r"it has at \1 \2 \3"),
    (r"string should match pattern (.*)", r"it must be of the form \1"),
    (r"field required", "it is missing"),
    (r"input should be greater than or equal to (\S+)", r"it must be at least \1"),
    (r"input should be greater than (\S+)", r"it must be more than \1"),
    (r"input should be less than or equal to (\S+)", r"it must be at most \1"),
    (r"input should be less than (\S+)", r"it must be less than \1"),
    (r"input should be ('.*)", r"it must be \1"),
)


_BOUNDS = frozenset(("greater_than", "greater_than_equal", "less_than", "less_than_equal"))


def plain_reason(error: ErrorDetails) -> str:
    """What is wrong with a value. Repeats a number out of bounds: it may not be the one that the user meant."""
    message = plain_message(error["msg"])
    return f"{message}, not {error['input']!r:.80}" if error["type"] in _BOUNDS else message


def plain_message(message: str) -> str:
    """The message without programmers' terms."""
    for pattern, words in _WORDS:
        message = re.sub(pattern, words, message, count=1, flags=re.IGNORECASE)
    return message
