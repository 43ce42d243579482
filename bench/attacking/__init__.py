"""Attacks on a broker of this machine, by name. `python -m bench.attacking` is the attacker, a process of its own.

Each is bounded in count and time and goes to 127.0.0.1. To add one: an `Attack` in one of the modules.
"""

from bench.attacking import connections, groups, reads, requests

ATTACKS = {**connections.ATTACKS, **reads.ATTACKS, **requests.ATTACKS, **groups.ATTACKS}
OF_THE_ISSUE = (
    "declared",
    "stalled",
    "headers",
    "half-heads",
    "idle",
    "trickled-heads",
    "trickled-bodies",
    "trickled-reads",
    "pipelined",
    "pages",
    "streams",
    "big-streams",
    "segments",
    "wide",
    "paths",
    "lists",
    "rows",
    "headers-of-messages",
    "inflated",
)
