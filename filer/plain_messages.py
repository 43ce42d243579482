"""What Pydantic says about a value, in words for people who typed it."""

import re

_WORDS = (
    (r"value error, ", ""),
    (r"input should be a valid integer(, unable to parse string as an integer)?", "it must be a whole number"),
    (r"input should be a valid number(, unable to parse string as a number)?", "it must be a number"),
    (r"input should be greater than or equal to (\S+)", r"it must be at least \1"),
    (r"input should be greater than (\S+)", r"it must be more than \1"),
    (r"input should be less than or equal to (\S+)", r"it must be at most \1"),
    (r"input should be less than (\S+)", r"it must be less than \1"),
    (r"input should be ('.*)", r"it must be \1"),
)


def plain_message(message: str) -> str:
    """The message without the words of a program."""
    for pattern, words in _WORDS:
        message = re.sub(pattern, words, message, count=1, flags=re.IGNORECASE)
    return message
