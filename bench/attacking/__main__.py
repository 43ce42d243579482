"""The attacker: a process of the lowest priority.

    python -m bench.attacking NAME URL SECONDS

It says `ready`, waits for a line on its standard input, attacks for so long, and prints what it saw.
"""

import asyncio
import sys
from urllib.parse import urlsplit

from bench.attacking import ATTACKS
from bench.attacking.attack import HOST, lower_priority


def main() -> None:
    _, name, url, seconds = sys.argv
    if urlsplit(url).hostname not in (HOST, "localhost"):
        sys.exit(f"an attack goes to {HOST} only, not to {url}")
    lower_priority()
    print("ready", flush=True)
    sys.stdin.readline()
    seen = asyncio.run(_attack(name, url, float(seconds)))
    print(", ".join(f"{count}x {what}" for what, count in sorted(seen.items())))


async def _attack(name: str, url: str, seconds: float) -> "dict[str, int]":
    return await ATTACKS[name].run(url, seconds)


main()
