"""Programs that interrupt themselves at one place, in a process of their own."""

import subprocess
import sys

from tests.support.broker.broker_process import broker_environment

# Ctrl-C when a module is about to be imported.
AT_IMPORT = """
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {place!r}:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Finder())
"""


def interrupted(program: str, *arguments: str) -> tuple[int, str, str]:
    """The exit code, stdout and stderr of a Python program."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=broker_environment({}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr
