"""How fast a broker is beside Kafka and NATS: the same work for each, in one run, in one table.

    python -m bench.beside_peers [--rounds 3] [--seconds 4] [--only CASE ...] [--alone]

Kafka needs Java 17 and Maven, NATS needs Go; they are fetched into .peers/ once (`bench/peers/versions.toml`). Where
one is missing, the run says so and goes on without it. See bench/README.md.
"""

import argparse
import random
import sys

from bench.beside.all_cases import all_cases
from bench.beside.case import HEADER, Case, Measured
from bench.beside.programs import Programs, programs
from bench.harness.running import machine, show_progress
from bench.harness.server_process import BenchFailed, back_free_memory, scratch_folder
from bench.harness.wrk import check_wrk
from bench.peers.versions import said

FREE_BYTES = 1024**3
DURABLE = (
    "A message is acknowledged by BraidMQ (acks=stored) when its file is synced and has its name; by Kafka (one "
    "replica, acks=all) and by NATS JetStream (file store) when it is written: the system, or the server every two "
    "minutes, syncs it later. All files are in memory (/dev/shm), and all processes share the machine's processors. A "
    "cell has the figure, the server's processor time for a message, and its memory at the end (PSS)."
)


def main() -> None:
    """Measure, and print the table."""
    options = _options()
    try:
        check_wrk()
        found = Programs() if options.alone else programs()
        for each in found.missing:
            show_progress(f"bench: {each}")
        cases = [each for each in all_cases(found) if not options.only or each.name in options.only]
        measured = [measure(case, options.rounds, options.seconds) for case in cases]
    except BenchFailed as error:
        sys.exit(f"bench: {error}")
    print(f"{machine()}; {', '.join(said())}; medians of {options.rounds} rounds of {options.seconds:g} s\n")
    print("\n".join([*HEADER, *(line for each in measured for line in each.lines())]))
    print("\n".join(["", DURABLE, *found.missing]))


def measure(case: Case, rounds: int, seconds: float) -> Measured:
    """Every side in every round, in a random order, each with a new server and an empty folder."""
    measured = Measured(case)
    rounds = min(rounds, case.rounds or rounds)
    for number in range(rounds):
        for side in random.sample(case.sides, len(case.sides)):
            show_progress(f"{case.name}: {side.name}, round {number + 1} of {rounds}")
            with scratch_folder() as folder:
                back_free_memory(folder, FREE_BYTES)
            measured.add(side.name, side.measure(seconds))
    show_progress("\n".join(measured.lines()))
    return measured


def _options() -> argparse.Namespace:
    names = [case.name for case in all_cases(Programs())]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often each side is measured (3)")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long each time, where that is free (4)")
    parser.add_argument("--only", action="append", choices=names, metavar="CASE", help=", ".join(names))
    parser.add_argument("--alone", action="store_true", help="without the peers")
    options = parser.parse_args()
    if options.rounds < 1 or not 1 <= options.seconds <= 600:
        parser.error("--rounds must be 1 or more, --seconds from 1 to 600")
    return options


if __name__ == "__main__":
    main()
