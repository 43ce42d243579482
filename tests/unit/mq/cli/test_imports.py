"""Commands start fast: each imports only what it needs, and lists of commands import none of them."""

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import typer

from mq.cli.command_line import app
from mq.cli.commands import COMMANDS
from mq.cli.lazy_group import Group, Place

ARROW = {"pyarrow", "numpy"}
CLIENT = {"httpx", "pydantic"}
# What takes a noticeable time to import. Whatever a command imports of these has to stand here.
HEAVY = [
    "pyarrow", "pyarrow.parquet", "pyarrow.csv", "numpy", "pandas", "pyspark", "polars", "duckdb", "matplotlib",
    "boto3", "botocore", "aiobotocore",
    "aiohttp", "fastapi", "starlette", "uvicorn", "kazoo", "prometheus_client", "httpx", "pydantic", "mq.broker",
    "opentelemetry", "rich", "httpx._main", "click", "zstandard", "mq.base.version",
]  # fmt: skip
NOWHERE = ["--url", "http://127.0.0.1:9"]
# For helps, and for tables that are too wide for a terminal.
RICH = {"rich"}
VERSION = {"mq.base.version"}
CASES: dict[str, set[str]] = {
    "": RICH,
    "--help": RICH,
    "--version": VERSION,
    # Typer itself imports pydantic for a command with options.
    "topic --help": {"pydantic", *RICH},
    "serve --help": {"pydantic", *RICH},
    "config show": {"pydantic"},
    "healthcheck --port 9": {"pydantic"},
    "publish --help": {*CLIENT, *RICH},
    "subscribe --help": {*CLIENT, *RICH},
    "local --help": {*CLIENT, *RICH, *VERSION},
    "pipeline --help": {"pydantic", *RICH},
    "topic list": CLIENT,
    "topic create t": CLIENT,
    "topic config t": CLIENT,
    "topic describe t": CLIENT,
    "topic history t": CLIENT,
    "topic split t 0": CLIENT,
    "topic merge t 0 1": CLIENT,
    "topic delete t --yes": CLIENT,
    "topic-group create g t": CLIENT,
    "topic-group list": CLIENT,
    "topic-group describe g": CLIENT,
    "topic-group delete g --yes": CLIENT,
    "group create t g": CLIENT,
    "group list t": CLIENT,
    "group describe t g": CLIENT,
    "group reset t g --to latest": CLIENT,
    "group redrive t g": CLIENT,
    "group delete t g --yes": CLIENT,
    "dead-letters t --group g": CLIENT,
    # It waits for its first broker; what stands behind the two dashes is the command that it runs.
    "work t --group g --timeout 1s true": {*CLIENT, *ARROW},
    "cluster status": CLIENT,
    "context add ann": {"pydantic"},
    "context use": {"pydantic"},
    "context list": {"pydantic"},
    "context show": {"pydantic"},
    "context remove": {"pydantic"},
    "token create ann": {"pydantic"},
    "token create-static ann": {"pydantic"},
    "token inspect a.b.c": {"pydantic"},
    "token revoke --id t": CLIENT,
    "token rotate-key": {"pydantic"},
    "token public-keys": {"pydantic"},
    "peer-keys add /nowhere/keys": {"pydantic"},
    "peer-keys use /nowhere/keys": {"pydantic"},
    "peer-keys drop /nowhere/keys": {"pydantic"},
    "peer-keys list /nowhere/keys": {"pydantic"},
    "policy show": CLIENT,
    "policy apply /dev/null": CLIENT,
    "cluster drain b": CLIENT,
    "cluster undrain b": CLIENT,
    "files ls t": CLIENT,
    "files sql t": CLIENT,
    "files cat t": {*CLIENT, *ARROW, "pyarrow.parquet"},
    "subscribe t": {*CLIENT, *ARROW},
    "publish t x": CLIENT,
    "bench": {*CLIENT, *ARROW},
    "doctor": {*CLIENT, *VERSION},
    "verify t": CLIENT,
}
# They take 17 s of processor time, in a whole run at the lowest priority beside those that keep both processors busy.
LIMIT_SECONDS = 300
pytestmark = pytest.mark.timeout(LIMIT_SECONDS + 30)
# Each command in a process of its own, forked where nothing but what all of them need has been imported.
SCRIPT = f"""
import gc, json, os, sys
for name in list(os.environ):
    if name.startswith("BRAIDMQ_"):
        del os.environ[name]
from mq.cli import main
told = os.dup(1)
os.dup2(os.open(os.devnull, os.O_RDWR), 1)
os.dup2(1, 2)
for command in json.load(sys.stdin):
    if not (process := os.fork()):
        sys.argv = ["mq", *command]
        try:
            main.main()
        except SystemExit:
            pass
        names = [name for name in {HEAVY!r} if name in sys.modules]
        names += ["a full collection"] * gc.get_stats()[2]["collections"]
        names += ["a collection at the end"] * (not gc.get_freeze_count())
        os.write(told, json.dumps(names).encode() + b"\\n")
        os._exit(0)
    assert os.waitpid(process, 0)[1] == 0, command
"""


@cache
def imported() -> dict[str, set[str]]:
    """What a process of each command has imported of the heavy modules when it ends, and if it looks for garbage."""
    arguments = [
        [*command.split(), *(NOWHERE if needs >= CLIENT and "--help" not in command else [])]
        for command, needs in CASES.items()
    ]
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT], input=json.dumps(arguments).encode(), capture_output=True, timeout=LIMIT_SECONDS
    )
    assert ended.returncode == 0, ended.stderr
    return {command: set(json.loads(line)) for command, line in zip(CASES, ended.stdout.splitlines(), strict=True)}


@pytest.mark.parametrize("command", CASES)
def test_a_command_imports_only_what_it_needs(command: str) -> None:
    assert imported()[command] == CASES[command]


def test_every_command_is_measured() -> None:
    def names(commands: Any, *path: str) -> Iterator[str]:
        for name, place in commands.items():
            if isinstance(place, Group):
                yield from names(place.commands, *path, name)
            else:
                yield " ".join((*path, name))

    measured = set(CASES)
    # `topic repair` works on a store, as `verify` does; jobs are other processes.
    left = {name for name in names(COMMANDS) if not any(case.startswith(name) for case in measured)}
    assert left == {"topic repair"}


def commands_of(group: Any, places: Any, *path: str) -> Iterator[tuple[str, Any, Place | Group]]:
    for name, place in places.items():
        command = group.commands[name]
        yield " ".join((*path, name)), command, place
        if isinstance(place, Group):
            yield from commands_of(command, place.commands, *path, name)


ALL = list(commands_of(typer.main.get_command(app), COMMANDS))


@pytest.mark.parametrize(("command", "place"), [each[1:] for each in ALL], ids=[each[0] for each in ALL])
def test_the_list_of_commands_tells_what_the_command_tells(command: Any, place: Place | Group) -> None:
    assert " ".join(command.help.split("\n\n")[0].split()) == place.summary
