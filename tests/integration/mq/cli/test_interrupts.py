"""Ctrl-C at each place in the life of a command: 130 and no stack trace, or it had done what was asked."""

from pathlib import Path

import pytest

from tests.support.broker.broker_process import BrokerProcess
from tests.support.process import interrupted_program

# Ctrl-C when a function is called, again and again.
_AT_CALL = """
import {module}

def interrupted(*given, _before={module}.{function}, **named):
    signal.raise_signal(signal.SIGINT)
    return _before(*given, **named)

{module}.{function} = interrupted
"""
# Ctrl-C when the interpreter ends.
_AT_EXIT = """
import atexit
atexit.register(signal.raise_signal, signal.SIGINT)
"""
_PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
{prepare}
from mq.cli.main import main
sys.argv[0] = "mq"
main()
"""


def interrupted(prepare: str, *arguments: str) -> tuple[int, str, str]:
    """The exit code, stdout and stderr of a command that interrupts itself."""
    return interrupted_program.interrupted(_PROGRAM.format(prepare=prepare), *arguments)


@pytest.mark.parametrize(
    "place", ["filer.refused_imports", "mq.cli.interrupts", "typer", "mq.cli.topics.topic", "httpx", "uvloop"]
)
def test_while_it_is_imported(place: str) -> None:
    assert interrupted(
        interrupted_program.AT_IMPORT.format(place=place), "topic", "list", "--url", "http://127.0.0.1:9"
    ) == (130, "", "")


@pytest.mark.parametrize(
    ("module", "function"),
    [("asyncio", "create_task"), ("asyncio", "Runner.close"), ("orjson", "dumps")],
    ids=["while it talks to the broker", "while its event loop is closed", "while it prints"],
)
def test_while_it_runs(module: str, function: str, broker: BrokerProcess) -> None:
    prepare = _AT_CALL.format(module=module, function=function)
    assert interrupted(prepare, "topic", "list", "--json", "--url", broker.url) == (130, "", "")


def test_as_it_ends(broker: BrokerProcess) -> None:
    code, out, err = interrupted(_AT_EXIT, "topic", "list", "--json", "--url", broker.url)
    assert (code, err) == (0, "") and out.startswith("[")


def test_twice_in_a_publish(broker: BrokerProcess, topic: str, tmp_path: Path) -> None:
    """The second one comes while the first one is seen to: it ends the command in the middle of that."""
    lines = tmp_path / "lines.txt"
    lines.write_text("1\n2\n3\n")
    assert interrupted("", "topic", "create", topic, "--url", broker.url)[0] == 0
    prepare = _AT_CALL.format(module="asyncio", function="shield")
    code, out, err = interrupted(prepare, "publish", topic, "--file", str(lines), "--url", broker.url)
    assert (code, out) == (130, "")
    assert err == "mq: interrupted: nothing was stored\n" or " may or may not be stored" in err
    assert err.startswith("mq: interrupted: ") and err.count("\n") == 1


def test_what_is_started_in_the_background_goes_on(broker: BrokerProcess) -> None:
    """A shell has its background jobs ignore Ctrl-C, which is meant for the one in front."""
    prepare = f"signal.signal(signal.SIGINT, signal.SIG_IGN)\n{_AT_CALL.format(module='orjson', function='dumps')}"
    code, out, err = interrupted(prepare, "topic", "list", "--json", "--url", broker.url)
    assert (code, err) == (0, "") and out.startswith("[")
