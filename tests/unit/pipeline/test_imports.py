"""The options of jobs, their help and what is wrong with them come without what the jobs themselves need."""

import json
import subprocess
import sys

HEAVY = ["pyarrow", "numpy", "pandas", "pyspark", "httpx", "asyncio", "pyiceberg", "boto3", "botocore", "aiobotocore"]
COMMANDS = [
    ["--help"],
    ["skew", "--help"],
    ["skew", "t", "--parts", "0"],
    ["compact", "t", "--rollup-size", "2GiB"],
    ["export", "t", "--to", "x", "--in-place"],
    ["backfill", "s", "t", "--value-json", "--option", "header"],
]
SCRIPT = f"""
import contextlib, io, json, sys
from pipeline.program import run
for command in {COMMANDS}:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            code = run(command)
        except SystemExit as ended:
            code = ended.code
    print(json.dumps([code, [name for name in {HEAVY} if name in sys.modules]]))
"""


def test_no_job_is_imported_before_its_options_are_right() -> None:
    told = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60).stdout
    codes = [0 if "--help" in command else 2 for command in COMMANDS]
    assert [json.loads(line) for line in told.splitlines()] == [[code, []] for code in codes]
