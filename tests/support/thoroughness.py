"""How many random examples, seeds and files a test has: a few in each run of all tests, many in `make test-thorough`.

Each run draws others where a test draws at random, so a few of them find, in time, what many find at once.
"""

import os

THOROUGH = os.environ.get("BRAIDMQ_TEST_THOROUGH", "") not in ("", "0")


def seeds(many: int, few: range) -> range:
    """As many as BRAIDMQ_TEST_SEEDS says; else the first `many`, of which ordinary runs have those in `few`."""
    asked = os.environ.get("BRAIDMQ_TEST_SEEDS")
    return range(int(asked)) if asked else few if not THOROUGH else range(many)


def few_or_many(few: int, many: int) -> int:
    """The first in ordinary runs, the second where BRAIDMQ_TEST_THOROUGH is set."""
    return many if THOROUGH else few
