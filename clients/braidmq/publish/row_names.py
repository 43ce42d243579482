"""Names rows in refusals as the caller counts them: a broker knows only their numbers in one request."""

import re
from collections.abc import Callable
from dataclasses import replace

from braidmq.errors import BraidMQError

OF_REQUEST = re.compile(r"(?:row (\d+) of the request|messages\[(\d+)\])(?=[:.\[])")
OF_TABLE = re.compile(r"row (\d+) of the table(?=:)")
OF_MESSAGES = re.compile(r"messages\[(\d+)\](?=[:.\[])")


def rename_row(failure: BraidMQError, names: re.Pattern[str], name: Callable[[int], str], *, before: int = 0) -> None:
    """Rename the row with which a refusal begins: to the name of its number plus `before`."""
    problem = failure.problem
    if problem is None or (found := names.match(problem.detail)) is None or not failure.args:
        return
    named = name(before + int(found[found.lastindex or 1]))
    detail = named + problem.detail[found.end() :]
    failure.args = (str(failure.args[0]).replace(problem.detail, detail, 1), *failure.args[1:])
    extras = problem.extras
    if isinstance(remedy := extras.get("remedy"), dict):
        # The fault begins as the detail does.
        extras = extras | {"remedy": remedy | {"fault": named + str(remedy.get("fault", ""))[found.end() :]}}
    failure.problem = replace(problem, detail=detail, extras=extras)


def row_of_table(row: int) -> str:
    """The name of a row in the table that was given."""
    return f"row {row} of the table"


def message_of_many(row: int) -> str:
    """The name of a message among those that were given."""
    return f"messages[{row}]"
