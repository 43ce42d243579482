"""What is forked for Spark is what Spark's own Python would be: it has its pipes, and ends when they do."""

import json
import os
import struct
import subprocess
from pathlib import Path

from tests.support.spark.spark_python import quick_python

SECONDS = 60.0
TELL = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['A_NAME'], os.getcwd()])); sys.exit(3)"


def start(*arguments: str, folder: Path) -> "subprocess.Popen[bytes]":
    command = [quick_python(), *arguments]
    environment = {**os.environ, "A_NAME": "a value"}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_a_daemon_tells_its_port_and_ends_with_its_stdin(tmp_path: Path) -> None:
    with start("-m", "pyspark.daemon", "pyspark.worker", folder=tmp_path) as daemon:
        assert daemon.stdout is not None
        (port,) = struct.unpack("!i", daemon.stdout.read(4))
        assert 0 < port < 65536
        assert daemon.poll() is None
        assert daemon.communicate(timeout=SECONDS) == (b"", b"")


def test_a_module_that_fails_says_so(tmp_path: Path) -> None:
    with start("-m", "pyspark.no_such_module", folder=tmp_path) as process:
        out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, out) == (1, b"") and b"pyspark.no_such_module" in err


def test_other_programs_are_this_python(tmp_path: Path) -> None:
    with start("-c", TELL, "an argument", folder=tmp_path) as process:
        out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err) == (3, b"")
    assert json.loads(out) == [["an argument"], "a value", str(tmp_path)]
