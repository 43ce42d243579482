"""A program that uses the Python client as docs/client.md says, while a test does something to the brokers."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from braidmq import Client
from tests.support.process.processes import child_environment, end_with_us, until

PUBLISHING = """
import itertools, sys
from braidmq import Client
with Client() as client:
    client.create_topic(sys.argv[1], segments=4, value_type="json")
    for number in itertools.count():
        client.publish(sys.argv[1], number, key=str(number % 13))
        print(number, flush=True)
"""
PATIENCE_SECONDS = 60.0


class Traffic:
    """Numbers, one after the other, to a topic. Entering the context starts it, until some are acknowledged."""

    def __init__(self, variables: Mapping[str, str], topic: str, folder: Path) -> None:
        self._variables, self.topic = variables, topic
        self._acknowledged, self._errors = folder / "acknowledged", folder / "errors"

    def __enter__(self) -> Self:
        environment = {**child_environment(), **self._variables}
        with self._acknowledged.open("w") as out, self._errors.open("w") as errors:
            command = [sys.executable, "-c", PUBLISHING, self.topic]
            self._process = subprocess.Popen(command, env=environment, stdout=out, stderr=errors)
        end_with_us(self._process.pid)
        self.until_more(20)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()

    def acknowledged(self) -> list[int]:
        """The numbers so far."""
        lines = self._acknowledged.read_text().split("\n")[:-1]
        return [int(line) for line in lines]

    def until_more(self, count: int) -> None:
        """Until so many more are acknowledged than now."""
        before = len(self.acknowledged())
        until(
            lambda: self._process.poll() is not None or len(self.acknowledged()) >= before + count,
            timeout_seconds=PATIENCE_SECONDS,
        )
        assert self._process.poll() is None, self._errors.read_text()

    def check(self) -> None:
        """It has seen no error and goes on; what was acknowledged is there, once, and in the order of keys."""
        self.until_more(20)
        self._process.kill()
        self._process.wait()
        published = self.acknowledged()
        with connected(self._variables) as client:
            read = [(message.key_text, int(message.value)) for message in client.browse(self.topic)]
        numbers = sorted(number for _, number in read)
        # The last one may be stored, and its answer not printed.
        assert numbers[: len(published)] == published and len(numbers) <= len(published) + 1
        for key in {key for key, _ in read}:
            of_key = [number for each, number in read if each == key]
            assert of_key == sorted(of_key)
        print(f"{self.topic}: {len(published)} acknowledged, {len(read)} read, no error")


def connected(variables: Mapping[str, str]) -> Client:
    """A client of the brokers in this process."""
    return Client(variables["BRAIDMQ_URL"], ca=variables["BRAIDMQ_CA"], token_file=variables["BRAIDMQ_TOKEN_FILE"])
