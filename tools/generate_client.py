"""Generate the blocking client, `clients/braidmq/client.py`, from the asynchronous one, `async_client.py`.

    python tools/generate_client.py            # write it
    python tools/generate_client.py --check    # exit with 1 if the file is not what this program makes

Every public method of `AsyncClient` becomes a method of `Client` with the same parameters and docstring, which runs
it on the client's event loop. How a result crosses over follows from its type: an awaited value is returned, an
`AsyncIterator` becomes an `Iterator`, and a class of `_WRAPPERS` is wrapped. `_BODIES` and `_DOCSTRINGS` hold the few
exceptions. Never edit `client.py` by hand: `tests/unit/clients/test_generated_client.py` compares it.
"""

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "clients/braidmq/async_client.py"
TARGET = ROOT / "clients/braidmq/client.py"

_HEADER = '''"""The blocking client: the asynchronous one on an event loop in a thread of its own.

Generated from `async_client.py` by `tools/generate_client.py`: do not edit.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

from braidmq.async_client import AsyncClient
from braidmq.blocking import LoopThread, Messages, Payload, Tables, publish_in_batches
from braidmq.blocking_producer import Producer
from braidmq.blocking_consumers import Consumer
from braidmq.blocking_groups import Group, Worker
from braidmq.blocking_publish import SinglePublishes
from braidmq.read.plain_polls import PlainPolls
from braidmq.short_tracebacks import short_tracebacks
'''

_CLASS = '''

@short_tracebacks
class Client:
    """A client of one cluster. Use it as a context manager, or call `close`.

    `AsyncClient` does the work; its docstring describes the settings, which are the same. Threads may share a client,
    but not an iterator or a payload.
    """
'''

# For a class that the asynchronous client returns: the class that the blocking one returns, and how it is made.
_WRAPPERS = {
    "AsyncMessages": ("Messages", "Messages(self._loop, {call}, self._polls)"),
    "AsyncTables": ("Tables", "Tables(self._loop, {call})"),
    "AsyncProducer": ("Producer", "Producer(self._loop, {call})"),
    "AsyncGroup": ("Group", "Group(self._loop, {call})"),
    "AsyncWorker": ("Worker", "Worker(self._loop, {call})"),
    "AsyncConsumer": ("Consumer", "Consumer(self._loop, {call})"),
    "AsyncPayload": ("io.BufferedReader", "io.BufferedReader(Payload(self._loop, {call}))"),
}
_RENAMED = {"__aenter__": "__enter__", "__aexit__": "__exit__", "aclose": "close"}
_BODIES = {
    "__repr__": 'return repr(self._async).removeprefix("Async")',
    "__aenter__": "return self",
    "__aexit__": "self.close()",
    "aclose": (
        "self._singles.close()\nself._polls.close()\n"
        "if self._loop.is_open:\n    self._loop.call(self._async.aclose)\n    self._loop.close()"
    ),
    "publish": (
        "return self._singles.publish(topic, value, key=key, headers=headers, event_time=event_time, "
        "deliver_at=deliver_at, delay=delay, expires_at=expires_at)"
    ),
    # It iterates over the messages in the caller's thread.
    "publish_many": "return publish_in_batches(self._loop, self._async.publish_many, topic, messages)",
}
# What the blocking client is made of besides the asynchronous one.
_PARTS = """self._loop = LoopThread()
self._singles = SinglePublishes(
    self._async,
    self._loop,
    headers=headers,
    clock=clock or SystemClock(),
    upload_threshold_bytes=upload_threshold_bytes,
    direct=idempotent and http_transport is None,
)
self._polls = PlainPolls(
    self._async._transport,
    self._loop,
    headers=headers,
    direct=http_transport is None,
)"""
_DOCSTRINGS = {
    "aclose": (
        "Close every connection; later calls raise `ClientClosed`. Workers and consumers are closed first.\n\n"
        "        Closing again does nothing.\n        "
    ),
    "open": (
        "Return the payload of a message, inline or by reference, as a binary file.\n\n"
        "        Its ETag is checked when it is opened, its size and SHA-256 by the read that reaches the end. Raises\n"
        "        `PayloadMismatch` if one of them differs.\n        "
    ),
}
_ADDITIONS = {"publish_table": "`progress` is called in the client's thread."}

_Method = ast.FunctionDef | ast.AsyncFunctionDef


def generate(source: str) -> str:
    """The text of the blocking client, before it is formatted."""
    module = ast.parse(source)
    client = next(node for node in module.body if isinstance(node, ast.ClassDef) and node.name == "AsyncClient")
    imports = [ast.unparse(node) for node in _imports(module.body)]
    methods = [node for node in client.body if isinstance(node, _Method) and _is_public(node)]
    return "\n".join([_HEADER, *imports, _CLASS, *map(_method, methods)])


def _imports(body: Iterable[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports of a module, also those that only types need."""
    for node in body:
        if isinstance(node, ast.If):
            yield from _imports(node.body)
        elif isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.module != "__future__"):
            yield node


def formatted(text: str) -> str:
    """As ruff writes it, without the imports that it does not need."""
    name = ["--stdin-filename", str(TARGET)]
    checked = _ruff(["check", "--quiet", "--fix", "--select", "F401,I", *name, "-"], text)
    return _ruff(["format", "--quiet", *name, "-"], checked)


def _ruff(arguments: list[str], text: str) -> str:
    command = [sys.executable, "-m", "ruff", *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def _is_public(method: _Method) -> bool:
    return not method.name.startswith("_") or method.name == "__init__" or method.name in _BODIES


def _method(method: _Method) -> str:
    """One method of the blocking client."""
    returns, body = _returns_and_body(method)
    name = _RENAMED.get(method.name, method.name)
    decorators = [f"@{ast.unparse(each)}" for each in method.decorator_list]
    docstring = _docstring(method)
    lines = [f"    {line}" for line in [*decorators, f"def {name}({ast.unparse(method.args)}) -> {returns}:"]]
    if docstring:
        lines.append(f'        """{docstring}"""')  # its further lines are indented already
    lines += [f"        {line}" for line in body.splitlines()]
    return "\n".join([*lines, ""])


def _returns_and_body(method: _Method) -> tuple[str, str]:
    annotation = "None" if method.returns is None else ast.unparse(method.returns)
    call = f"self._async.{method.name}({', '.join(_arguments(method.args))})"
    if method.name in _BODIES:
        return annotation, _BODIES[method.name]
    if method.name == "__init__":
        return annotation, f"self._async = AsyncClient({', '.join(_arguments(method.args))})\n{_PARTS}"
    if method.decorator_list:  # a property
        return annotation, f"return self._async.{method.name}"
    if annotation.startswith("AsyncIterator["):
        return annotation.removeprefix("Async"), f"return self._loop.iterate({call})"
    if annotation in _WRAPPERS:
        wrapped, made = _WRAPPERS[annotation]
        return wrapped, f"return {made.format(call=call)}"
    if isinstance(method, ast.AsyncFunctionDef):
        call = f"self._loop.call({', '.join([f'self._async.{method.name}', *_arguments(method.args)])})"
        return annotation, call if annotation == "None" else f"return {call}"
    raise ValueError(f"AsyncClient.{method.name} returns {annotation}: say in _WRAPPERS how a blocking caller gets it")


def _arguments(parameters: ast.arguments) -> list[str]:
    """The parameters without `self`, passed on as they are declared."""
    passed = [each.arg for each in parameters.args[1:]]
    passed += [f"{each.arg}={each.arg}" for each in parameters.kwonlyargs]
    return passed + ([] if parameters.kwarg is None else [f"**{parameters.kwarg.arg}"])


def _docstring(method: _Method) -> str:
    """The method's docstring, in the words of the blocking client."""
    if method.name in _DOCSTRINGS:
        return _DOCSTRINGS[method.name]
    text = ast.get_docstring(method, clean=False) or ""
    if method.name in _ADDITIONS:
        text = f"{text.rstrip()}\n        {_ADDITIONS[method.name]}\n        "
    return re.sub(r"\bAsync(?=[A-Z])", "", text)


def main() -> int:
    """Write the file, or compare it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the file is out of date")
    wanted = formatted(generate(SOURCE.read_text()))
    if parser.parse_args().check:
        return int(TARGET.read_text() != wanted)
    TARGET.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
