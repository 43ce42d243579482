import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import pytest
from ulid import ULID

from mq.cli.main import run
from tests.support.broker.broker_process import BrokerProcess

Mq = Callable[..., str]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A real broker shared by the tests, which take topics of their own."""
    with BrokerProcess(data=tmp_path_factory.mktemp("cli") / "data") as broker:
        yield broker


@pytest.fixture
def topic() -> str:
    return f"t-{ULID()}"


def run_alone(arguments: Sequence[str]) -> int:
    """Run `mq` in this process. What its options put into the environment ends with it, as in a process of its own."""
    with mock.patch.dict(os.environ):
        return run([*arguments])


@pytest.fixture
def mq(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Mq:
    """Runs `mq` in this process against the broker: what it prints; it must not fail."""
    for name in os.environ:
        if name.startswith("BRAIDMQ_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("BRAIDMQ_URL", broker.url)

    def call(*arguments: str) -> str:
        code = run_alone(arguments)
        out, err = capfdbinary.readouterr()
        assert (code, err.decode()) == (0, ""), err.decode()
        return out.decode()

    return call


@pytest.fixture
def mq_json(mq: Mq) -> Callable[..., Any]:
    """As `mq`, with `--json`: the parsed answer."""

    def call(*arguments: str) -> Any:
        return json.loads(mq(*arguments, "--json"))

    return call


@pytest.fixture
def mq_fails(mq: Mq, capfdbinary: pytest.CaptureFixture[bytes]) -> Mq:
    """As `mq`, but it must fail: its one line on stderr, without the name in front."""

    def call(*arguments: str) -> str:
        assert run_alone(arguments) == 1
        err = capfdbinary.readouterr().err.decode()
        assert err.startswith("mq: ") and err.count("\n") == 1, err
        return err.removeprefix("mq: ").strip()

    return call


@pytest.fixture
def values(mq: Mq) -> Callable[[str], list[str]]:
    """The values of a topic, in the order they are read."""

    def read(topic: str) -> list[str]:
        return mq("subscribe", topic, "--until-end").splitlines()

    return read
