"""A program that uses the Python client as docs/client.md says, while a test does something to the brokers."""

import base64
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from braidmq import Client
from tests.kube.cluster.release import BROKERS, Release
from tests.support.process.processes import child_environment, end_with_us, until

PUBLISHING = """
import itertools, json, sys, time
from braidmq import Client, OutgoingMessage
topic, settings, keys, pace = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
numbers = itertools.count()
with Client() as client:
    client.create_topic(topic, value_type="json", **settings)
    while True:
        with open(pace) as file:
            count, pause_seconds = json.load(file)
        some = [next(numbers) for _ in range(count)]
        if count == 1:
            client.publish(topic, some[0], key=str(some[0] % keys))
        else:
            client.publish_many(topic, [OutgoingMessage(number, str(number % keys)) for number in some])
        print(*some, sep="\\n", flush=True)
        time.sleep(pause_seconds)
"""
PATIENCE_SECONDS = 60.0


class Pace(NamedTuple):
    """How many messages the publisher sends at a time, and for how long it waits after they are acknowledged."""

    messages: int = 1
    pause_seconds: float = 0.0


class Load(NamedTuple):
    """What is published: the settings of the topic, how many keys the messages have, and the pace at first."""

    settings: Mapping[str, Any] = {"segments": 4}
    keys: int = 13
    pace: Pace = Pace()


USUAL = Load()


class Traffic:
    """Numbers, one after the other, to a topic. Entering the context starts it, until some are acknowledged."""

    def __init__(self, variables: Mapping[str, str], topic: str, folder: Path, load: Load = USUAL) -> None:
        self._variables, self.topic, self._load = variables, topic, load
        self._acknowledged, self._errors, self._pace = (folder / name for name in ("acknowledged", "errors", "pace"))
        self._most_at_once = 0
        self.go_on(load.pace)

    def __enter__(self) -> Self:
        environment = {**child_environment(), **self._variables}
        with self._acknowledged.open("w") as out, self._errors.open("w") as errors:
            options = [json.dumps(self._load.settings), str(self._load.keys), str(self._pace)]
            command = [sys.executable, "-c", PUBLISHING, self.topic, *options]
            self._process = subprocess.Popen(command, env=environment, stdout=out, stderr=errors)
        end_with_us(self._process.pid)
        self.until_more(20)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()

    def go_on(self, pace: Pace) -> None:
        """At that pace from the next messages on."""
        self._most_at_once = max(self._most_at_once, pace.messages)
        written = self._pace.with_suffix(".new")
        written.write_text(json.dumps(pace))
        written.replace(self._pace)

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
        # The last ones may be stored, and their answer not printed.
        assert numbers == list(range(len(numbers))) and numbers[: len(published)] == published
        assert len(published) <= len(numbers) <= len(published) + self._most_at_once
        of_key: dict[str | None, list[int]] = {}
        for key, number in read:
            of_key.setdefault(key, []).append(number)
        assert all(each == sorted(each) for each in of_key.values())
        print(f"{self.topic}: {len(published)} acknowledged, {len(read)} read, no error")


def connected(variables: Mapping[str, str]) -> Client:
    """A client of the brokers in this process."""
    return Client(variables["BRAIDMQ_URL"], ca=variables["BRAIDMQ_CA"], token_file=variables["BRAIDMQ_TOKEN_FILE"])


def client_variables(release: Release, folder: Path) -> Mapping[str, str]:
    """How a program reaches the brokers: by the service, its CA, and the token of the administrator."""
    secrets = release.secrets()
    for name, data in (
        ("token", secrets[f"{BROKERS}-admin"]["token"]),
        ("ca.crt", secrets[f"{BROKERS}-tls"]["ca.crt"]),
    ):
        (folder / name).write_bytes(base64.b64decode(data))
    return {
        "BRAIDMQ_URL": f"https://{BROKERS}.{release.namespace}.svc:8080",
        "BRAIDMQ_CA": str(folder / "ca.crt"),
        "BRAIDMQ_TOKEN_FILE": str(folder / "token"),
    }
