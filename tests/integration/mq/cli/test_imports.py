"""Commands that reach a broker import no more than they use; the test of the same name has those that reach none."""

import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.support.broker.broker_process import BrokerProcess

# Beside Arrow itself, in which messages travel.
SLOW = [
    "pyarrow.parquet", "pyarrow.csv", "pyarrow.compute", "rich", "boto3", "botocore", "pandas", "mq.broker",
    "filer.format.segment_file",
]  # fmt: skip
SCRIPT = f"""
import json, sys
from mq.cli.main import main
try:
    main()
finally:
    print(json.dumps([name for name in {SLOW} if name in sys.modules]), file=sys.stderr)
"""


# What only prints tables of what a broker tells in JSON.
TABLES = [
    ["topic", "list"], ["topic", "describe", "TOPIC"], ["topic", "history", "TOPIC"], ["topic-group", "list"],
    ["topic", "config", "TOPIC"], ["files", "ls", "TOPIC"], ["files", "sql", "TOPIC"],
    ["group", "create", "TOPIC", "g"], ["group", "list", "TOPIC"], ["group", "describe", "TOPIC", "g"],
    ["dead-letters", "TOPIC", "--group", "g"], ["cluster", "status"], ["verify", "TOPIC"],
    ["doctor"], ["publish", "TOPIC", "b"],
]  # fmt: skip
NOT_FOR_TABLES = ["pyarrow", "numpy", *SLOW]
TABLES_SCRIPT = f"""
import json, sys
from mq.cli.main import refuse_what_is_never_used, run
refuse_what_is_never_used()
for command in json.load(sys.stdin):
    code = run(command)
    found = [name for name in {NOT_FOR_TABLES} if name in sys.modules]
    print(json.dumps([code, found]), file=sys.stderr)
"""


def test_tables_need_neither_arrow_nor_rich(mq: Callable[..., str], broker: BrokerProcess, topic: str) -> None:
    mq("topic", "create", topic)
    mq("publish", topic, "a")
    commands = [[topic if word == "TOPIC" else word for word in each] for each in TABLES]
    ended = subprocess.run(
        [sys.executable, "-c", TABLES_SCRIPT],
        input=json.dumps([[*each, "--url", broker.url] for each in commands]).encode(),
        env={**os.environ, "PYTHONWARNINGS": ""},
        capture_output=True,
        timeout=60,
    )
    told = dict(zip(map(" ".join, TABLES), map(json.loads, ended.stderr.splitlines()), strict=True))
    assert told == {command: [0, []] for command in told}, ended.stdout.decode()


@pytest.mark.parametrize(
    ("arguments", "stdin", "imported"),
    [
        (["publish", "--key", "k"], b"", []),
        (["publish", "--file", "-", "--json"], b"1\n2\n", ["pyarrow.compute"]),
        (["publish", "--file", "-"], b"1\n2\n", ["pyarrow.compute"]),
        (["subscribe", "--tail", "1", "--limit", "1"], b"", []),
        (["subscribe", "--until-end", "--format", "json"], b"", ["pyarrow.compute"]),
        (["subscribe", "--until-end"], b"", []),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_only_what_is_used_is_imported(
    mq: Callable[..., str], broker: BrokerProcess, topic: str, arguments: list[str], stdin: bytes, imported: list[str]
) -> None:
    mq("topic", "create", topic)
    mq("publish", topic, "a")
    command, *options = arguments
    values = ["b"] if command == "publish" and not stdin else []
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, command, topic, *values, *options, "--url", broker.url],
        input=stdin,
        env={**os.environ, "PYTHONWARNINGS": ""},
        capture_output=True,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr.decode()
    assert json.loads(ended.stderr) == imported
