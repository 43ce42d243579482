"""The brokers' own topics on the command line: shown on request, read like any other, and changed by no command."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import typer

from filer.clock import SystemClock
from filer.segment.next_file import Single
from filer.stores.local.local_store import LocalStore
from leader.membership.coordinator import InProcessCoordinator
from mq.base.settings import BrokerSettings
from mq.broker import Broker
from mq.cli.completion import complete_topic
from mq.cli.main import run
from mq.groups import group_topic
from tests.support.broker.broker_process import BrokerProcess


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the topics `__groups`, which has a message, and `orders`."""
    root = tmp_path_factory.mktemp("internal") / "data"

    async def fill() -> None:
        clock = SystemClock()
        broker = Broker(LocalStore(root, clock=clock), clock, InProcessCoordinator(), BrokerSettings())
        await broker.start("http://here")
        runtime = await group_topic.ensure(broker.topics, broker.administration)
        await runtime.publisher.publish_single(Single(b"orders/g", b'{"position":1}', None, None), 20)
        await broker.administration.put("orders", {})
        await broker.close()

    asyncio.run(fill())
    return root


@pytest.fixture(scope="module")
def broker(data: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(data=data) as running:
        yield running


@pytest.fixture(autouse=True)
def url(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("BRAIDMQ_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("BRAIDMQ_URL", broker.url)


def test_it_is_listed_on_request(capfd: pytest.CaptureFixture[str]) -> None:
    listed = {}
    for options in ((), ("--internal",)):
        assert run(["topic", "list", *options]) == 0
        listed[options] = [line.split()[0] for line in capfd.readouterr().out.splitlines()[2:]]
    assert listed == {(): ["orders"], ("--internal",): ["__groups", "orders"]}


def test_it_is_completed_for_who_types_such_a_name(broker: BrokerProcess) -> None:
    root = SimpleNamespace(params={})
    context = cast(typer.Context, SimpleNamespace(params={"url": broker.url}, find_root=lambda: root))
    assert complete_topic(context, "") == ["orders"]
    assert complete_topic(context, "__") == ["__groups"]


def test_it_is_read_and_verified(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["subscribe", "__groups", "--until-end"]) == 0
    assert capfd.readouterr().out == '{"position":1}\n'
    assert run(["verify", "__groups"]) == 0


@pytest.mark.parametrize(
    "command",
    [
        ("publish", "__groups", '{"position":2}'),
        ("topic", "create", "__groups"),
        ("topic", "config", "__groups", "--set", "retention.seconds=1"),
        ("topic", "delete", "__groups", "--yes"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_no_command_changes_it(command: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    assert run(command) == 1
    out, err = capfd.readouterr()
    assert out == "" and err.count("\n") == 1 and "topic '__groups' is the brokers' own" in err


def test_what_it_has_lost_is_not_given_up(data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["topic", "repair", "__groups", "--store", str(data), "--accept-loss"]) == 1
    err = capfd.readouterr().err
    assert err.count("\n") == 1 and "what it has lost is not given up: put the objects back" in err
    assert run(["topic", "repair", "__groups", "--store", str(data)]) == 0
