"""Goes on for a time, and ends with the first example on which the two brokers differ, hang, or raise."""

import argparse
import logging
import random
import time

from tests.support.mutated_publishes.comparison import comparison

EXAMPLES = 500
"""So many go to the same two brokers: what they store would fill the memory."""


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.mutated_publishes", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=None, help="that of the first 500 examples; others follow")
    arguments = parser.parse_args()
    logging.disable()
    seed = random.randrange(2**32) if arguments.seed is None else arguments.seed
    until_seconds = time.monotonic() + arguments.seconds
    examples = fast = known = 0
    print(f"seed {seed}", flush=True)
    while time.monotonic() < until_seconds:
        with comparison() as both:
            both.compare_any(EXAMPLES, seed_of_examples=seed)
            both.pass_on_any(EXAMPLES, seed_of_examples=seed)
            begun, begun_known = both.compare_stored()
        fast, known = fast + begun, known + begun_known
        examples, seed = examples + EXAMPLES, seed + 1
        print(f"{examples} examples alike, {fast} publishes on the fast path, {known} with a known head", flush=True)


if __name__ == "__main__":
    main()
