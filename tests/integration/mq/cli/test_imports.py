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


@pytest.mark.parametrize(
    ("arguments", "stdin", "imported"),
    [
        (["publish", "--key", "k"], b"", []),
        (["publish", "--file", "-", "--json"], b"1\n2\n", ["pyarrow.compute"]),
        (["publish", "--file", "-"], b"1\n2\n", ["pyarrow.compute", "rich"]),
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
