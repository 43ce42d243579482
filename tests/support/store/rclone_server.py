"""rclone's S3 server, which ignores the conditions of a put: the store that BraidMQ must refuse."""

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.process.processes import stop

KEY_ID = "rclone-key"
SECRET = "rclone-secret"


@contextlib.contextmanager
def rclone_server(folder: Path) -> Iterator[str]:
    """Run a server whose buckets are the folders in `folder`; yields its URL. It accepts only `KEY_ID` and `SECRET`.

    Raises `RuntimeError` where it does not come up.
    """
    command = [str(Path(sys.executable).with_name("rclone")), "serve", "s3", "--addr", "127.0.0.1:0"]
    process = subprocess.Popen(
        [*command, "--auth-key", f"{KEY_ID},{SECRET}", "--config", "", str(folder)],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        with contextlib.closing(process.stderr) as log:
            for line in log:
                if found := re.search(r"Starting s3 server on \[(http://[0-9.:]+)/\]", line):
                    yield found[1]
                    return
        raise RuntimeError(f"rclone ended with {process.wait()} before it served")
    finally:
        stop(process)
