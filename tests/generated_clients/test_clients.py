"""The program: create a topic, publish with a delay and headers, claim, ack, release, read dead letters, redrive."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from filer.stores.memory_store import MemoryStore
from tests.support.broker.http_broker import HttpBroker, http_broker

# The compiler of Go is at work for a minute, the first time.
pytestmark = pytest.mark.timeout(900)

HERE = Path(__file__).parent
DONE = {"delayed": "7f", "acked": 1, "dead": ["too heavy"], "redriven": 1, "again": "stone"}


@pytest.fixture
async def broker() -> AsyncIterator[HttpBroker]:
    async with http_broker(MemoryStore()) as running:
        yield running


async def test_a_client_in_typescript(broker: HttpBroker, tmp_path: Path) -> None:
    """Its compiler is strict: a field that may be missing has to be looked at, and an unknown one is an error."""
    folder = await generated_for("typescript", broker, tmp_path)
    program = folder / "node_modules" / ".bin"
    await run(folder, str(program / "openapi-typescript"), "openapi.json", "--output", "api.d.ts")
    await run(folder, str(program / "tsc"), "--project", ".")
    assert json.loads(await run(folder, "node", "built/program.js", broker.url)) == DONE


async def test_a_client_in_go(broker: HttpBroker, tmp_path: Path) -> None:
    folder = await generated_for("go", broker, tmp_path)
    (folder / "braidmq").mkdir()
    await run(folder, "go", "tool", "oapi-codegen", "-config", "config.yaml", "openapi.json")
    await run(folder, "go", "vet", "./...")
    assert json.loads(await run(folder, "go", "run", ".", broker.url)) == DONE


async def generated_for(language: str, broker: HttpBroker, tmp_path: Path) -> Path:
    """A copy of the folder of a language, with the broker's document in it."""
    folder = tmp_path / language
    shutil.copytree(HERE / language, folder, symlinks=True)
    answer = await broker.client.get("/openapi.json")
    (folder / "openapi.json").write_bytes(answer.raise_for_status().content)
    return folder


async def run(folder: Path, *command: str) -> str:
    """What a command prints. Fails with all of it if the command fails."""
    running = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    printed, errors = await running.communicate()
    assert running.returncode == 0, f"{' '.join(command)}\n{printed.decode()}\n{errors.decode()}"
    return printed.decode()
