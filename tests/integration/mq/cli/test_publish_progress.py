"""The progress bar of `mq publish` on a terminal."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.support.broker.broker_process import BrokerProcess, broker_environment

Mq = Callable[..., str]
_ROWS = 400_000
_SHOWN = re.compile(r"(\d+)%.{0,20}?([\d,]+) messages")


def on_a_terminal(*arguments: str) -> str:
    """What `mq` prints on a terminal of its own."""
    master, terminal = pty.openpty()
    words = []
    try:
        environment = broker_environment({"TERM": "xterm", "COLUMNS": "120"})
        command = [sys.executable, "-m", "mq.cli.main", *arguments]
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal
        ) as process:
            os.close(terminal)
            try:
                while chunk := os.read(master, 65_536):
                    words.append(chunk)
            except OSError:
                # The other end is closed.
                pass
            assert process.wait(60) == 0
    finally:
        os.close(master)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(words).decode())


def test_a_large_file_is_done_by_as_much_as_is_published(
    mq: Mq, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """Its bytes are read long before."""
    path = tmp_path / "big.csv"
    path.write_text("id,text\n" + "".join(f"{row:07d},{'x' * 30}\n" for row in range(_ROWS)))
    mq("topic", "create", topic)
    printed = on_a_terminal("publish", topic, "--file", str(path), "--url", broker.url)
    shown = [(int(percent), int(count.replace(",", ""))) for percent, count in _SHOWN.findall(printed)]
    assert len({percent for percent, _ in shown}) > 3, printed[-2000:]
    for percent, count in shown:
        assert abs(percent - 100 * count / _ROWS) <= 5, shown
