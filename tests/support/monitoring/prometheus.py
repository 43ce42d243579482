"""A real Prometheus, which scrapes brokers every second and decides every second which alerts fire.

    with Prometheus(tmp_path, short_rules()) as prometheus:
        prometheus.watch([broker.url])
        await prometheus.until_fires("BraidMQBrokerDown")

`make alerts` brings the programs.
"""

import asyncio
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import httpx
import yaml

from tests.support.kube.chart import NAMESPACE
from tests.support.monitoring.short_rules import JOB
from tests.support.process.processes import end_with_us, free_port, stop

START_SECONDS, POLL_SECONDS, PATIENCE_SECONDS = 60.0, 0.3, 90.0
_STARTS = 5


def program(name: str) -> str:
    """`prometheus` or `promtool`. Fails the test where they are not there."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    assert found, f"there is no {name}: make alerts brings it"
    return found


class Prometheus:
    """The process. Entering the context starts it on a free port, leaving it kills it. Its log stays in the folder."""

    def __init__(self, folder: Path, rules: str, *, token: str = "", ca: Path | None = None) -> None:
        self._folder = folder / "prometheus"
        self._folder.mkdir(parents=True)
        (self._folder / "rules.yml").write_text(rules)
        self._targets = self._folder / "targets.json"
        self._targets.write_text("[]")
        self._config = self._folder / "prometheus.yml"
        self._config.write_text(yaml.safe_dump(_config(token, ca)))
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def __enter__(self) -> Self:
        for _ in range(_STARTS):
            # Somebody else may take the port meanwhile: it ends then.
            if self._starts(free_port()):
                return self
        raise AssertionError(f"Prometheus does not start:\n{self._log.read_text()[-2000:]}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._process is not None
        stop(self._process)

    @property
    def _log(self) -> Path:
        return self._folder / "log"

    def _starts(self, port: int) -> bool:
        arguments = [
            f"--config.file={self._config}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        self.url = f"http://127.0.0.1:{port}"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([program("prometheus"), *arguments], stdout=log, stderr=log)
        end_with_us(self._process.pid)
        deadline = time.monotonic() + START_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                if httpx.get(f"{self.url}/-/ready", trust_env=False).status_code == 200:
                    return True
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        stop(self._process)
        return False

    def watch(self, urls: Iterable[str]) -> None:
        """Scrape the brokers at these addresses from now on, and no others."""
        addresses = [urlsplit(url).netloc for url in urls]
        new = self._targets.with_suffix(".new")
        new.write_text(json.dumps([{"targets": addresses, "labels": {"namespace": NAMESPACE}}]))
        new.replace(self._targets)

    async def query(self, text: str) -> Sequence[Mapping[str, Any]]:
        """What a query finds now. Fails the test if it is none."""
        answer = await self._get("/api/v1/query", query=text)
        found: list[Mapping[str, Any]] = answer["data"]["result"]
        return found

    async def query_range(self, text: str, start_seconds: float, end_seconds: float) -> Sequence[Mapping[str, Any]]:
        """What a query finds in each second between these times."""
        between = {"start": f"{start_seconds:f}", "end": f"{end_seconds:f}", "step": "1"}
        found: list[Mapping[str, Any]] = (await self._get("/api/v1/query_range", query=text, **between))["data"][
            "result"
        ]
        return found

    async def firing(self) -> Mapping[str, Sequence[Mapping[str, str]]]:
        """The labels of the alerts that fire now, by their names."""
        found: dict[str, list[Mapping[str, str]]] = {}
        for each in (await self._get("/api/v1/alerts"))["data"]["alerts"]:
            if each["state"] == "firing":
                found.setdefault(each["labels"]["alertname"], []).append(each["labels"])
        return found

    async def until_scraped(self, brokers: int) -> None:
        """Wait until so many brokers answer."""

        async def answer() -> bool:
            return len(await self.query(f'up{{job="{JOB}"}} == 1')) == brokers

        await self._until(answer, f"{brokers} brokers are scraped")

    async def until_fires(self, name: str, *, timeout_seconds: float = PATIENCE_SECONDS, **labels: str) -> None:
        """Wait until an alert fires, with these labels among its own."""

        async def fires() -> bool:
            return any(labels.items() <= each.items() for each in (await self.firing()).get(name, ()))

        await self._until(fires, f"{name} fires", timeout_seconds)

    async def until_quiet(self, *names: str, timeout_seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until none of these alerts fires."""

        async def quiet() -> bool:
            return not (await self.firing()).keys() & set(names)

        await self._until(quiet, f"{', '.join(names)} end", timeout_seconds)

    async def _until(self, condition: Any, what: str, timeout_seconds: float = PATIENCE_SECONDS) -> None:
        deadline = time.monotonic() + timeout_seconds
        while not await condition():
            assert time.monotonic() < deadline, (
                f"not within {timeout_seconds:g} s: {what}; firing: {await self.firing()}"
            )
            await asyncio.sleep(POLL_SECONDS)

    async def _get(self, path: str, **params: str) -> dict[str, Any]:
        async with httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=30) as client:
            answer = await client.get(path, params=params)
        assert answer.status_code == 200, f"{params}: {answer.text}"
        found: dict[str, Any] = answer.json()
        return found


def _config(token: str, ca: Path | None) -> dict[str, Any]:
    scraped: dict[str, Any] = {
        "job_name": JOB,
        "file_sd_configs": [{"files": ["targets.json"], "refresh_interval": "1s"}],
    }
    if token:
        scraped["authorization"] = {"credentials": token}
    if ca is not None:
        scraped |= {"scheme": "https", "tls_config": {"ca_file": str(ca)}}
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [scraped],
    }
