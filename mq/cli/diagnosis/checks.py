"""The checks of `mq doctor`."""

import asyncio
import os
import platform
import resource
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from importlib.metadata import version
from statistics import median
from typing import Any, Literal

import httpx

from braidmq import AsyncClient, Cluster
from braidmq.defaults import CLIENT_CERT_VARIABLE, TOKEN_FILE_VARIABLE, TOKEN_VARIABLE
from braidmq.remedies import in_commands
from braidmq.transport.addresses import shown
from braidmq.transport.tls import broker_tls
from filer import keys
from filer.clock import Clock
from filer.errors import BraidError
from filer.stores.fence_check import check_fencing
from filer.stores.store import Store
from mq.base.version import VERSION
from mq.cli.diagnosis.peer_port import CALL, look_at, of_call, of_keys, of_ports, outcome_of
from mq.cli.failures import CommandFailed

Result = Literal["ok", "warning", "failed"]
_Outcome = tuple[Result, str]

_ROUNDS = 5
_LARGE_BYTES = 1024 * 1024
# S3 has times in whole seconds.
_SKEW_SECONDS = 3.0
_OPEN_FILES = 1024
_PRESIGNED_SECONDS = 60
_READINESS_SECONDS = 5.0
_TOPICS_NAMED = 5
_REMEDIES = {
    "ENOSPC": "Free space on the device, or enlarge it: publishing goes on by itself",
    "EDQUOT": "Free space, or raise the quota: publishing goes on by itself",
    "EFBIG": "Raise the limit of file sizes of the broker's process (ulimit -f)",
    "EROFS": "Mount the file system writable again; its kernel log may tell of a failing disk",
    "EACCES": "Give the broker's user the right to write: check owner and mode of the directory",
    "EPERM": "Give the broker's user the right to write: check owner, mode and attributes (lsattr) of the directory",
    "ENOENT": "Mount the directory again, or put it back",
    "EMFILE": "Raise the limit of open files of the broker's process (ulimit -n), or find out who holds connections",
    "ENFILE": "Raise the limit of open files of the machine (fs.file-max)",
    "EIO": "Look into the kernel log: the disk may fail",
    "403": "Check the broker's credentials, their expiry, and the clock of its machine",
    "ECONNREFUSED": "Check that the store runs, and its address",
    "timeout": "Check the network to the store, and whether the store or its mount hangs",
    "connection": "Check the network to the store, and its address",
}
_USUAL_REMEDY = "Bring the store back: publishing goes on by itself"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    check: str
    result: Result
    detail: str


def machine_findings() -> list[Finding]:
    """Check the versions and the limits of this machine."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    enough = files >= _OPEN_FILES
    return [
        Finding("braidmq", "ok", VERSION),
        Finding("python", "ok", f"{platform.python_version()} ({sys.executable})"),
        Finding("pyarrow", "ok", version("pyarrow")),
        Finding(
            "open files",
            "ok" if enough else "warning",
            f"{files} per process" + ("" if enough else f": raise it to {_OPEN_FILES} or more (ulimit -n)"),
        ),
    ]


async def store_findings(store: Store, clock: Clock) -> list[Finding]:
    """Check that the store fences, how fast it answers, and that its clock agrees with ours. Close the store."""
    try:
        findings = [await _check("conditional writes", lambda: _fencing(store, clock))]
        if findings[0].result == "ok":
            findings += [
                await _check("1 KiB objects", lambda: _round_trips(store, clock, 1024)),
                await _check("1 MiB objects", lambda: _round_trips(store, clock, _LARGE_BYTES)),
                await _check("clock", lambda: _clock_skew(store, clock)),
                await _check("signed addresses", lambda: _signed(store)),
            ]
        return findings
    finally:
        await store.close()


async def broker_findings(client: AsyncClient, clock: Clock) -> list[Finding]:
    """Check that a broker answers, how fast, which brokers its cluster has, and that it can read its store.

    Of several addresses, those that failed before one answered are named, and the others are not asked.
    """
    try:
        started = clock.monotonic_seconds()
        cluster = await client.cluster()
        seconds = clock.monotonic_seconds() - started
    except BraidError as error:
        return [_failed("broker", error)]
    url, known = client.current_url, client.urls
    return [
        *(Finding("broker", "warning", f"{shown(each)} gave no answer") for each in known[: known.index(url)]),
        Finding("broker", *_broker(url, cluster, seconds)),
        await _check("readiness", lambda: _readiness(url)),
        await _check("topics", lambda: _topics(client)),
        Finding("damage", *_damage(cluster)),
        *await _peer_findings(url, cluster, clock),
    ]


async def _peer_findings(url: str, cluster: Cluster, clock: Clock) -> list[Finding]:
    """How brokers call each other, as far as a client can see it."""
    keys_outcome = of_keys(cluster)
    findings = [await _check("calls of brokers", lambda: _call_of_brokers(url))]
    if keys_outcome is not None:
        findings.append(Finding("keys of brokers", *keys_outcome))
    findings.append(Finding("port for brokers", *of_ports(cluster)))
    proves_by_keys = cluster.peer_keys == "required"
    ports = [(each.broker, each.peer_url) for each in cluster.brokers if each.peer_url]
    # At once: a firewall that drops packets makes each of them wait.
    looks = await asyncio.gather(*(look_at(peer_url, clock) for _, peer_url in ports))
    for (name, peer_url), seen in zip(ports, looks, strict=True):
        findings.append(Finding("port for brokers", *outcome_of(name, peer_url, seen, proves_by_keys=proves_by_keys)))
    return findings


async def _call_of_brokers(url: str) -> _Outcome:
    """Check that the port for clients refuses a call of brokers from a client."""
    try:
        async with httpx.AsyncClient(timeout=_READINESS_SECONDS, verify=broker_tls(), trust_env=False) as http:
            answer = await http.get(f"{url}{CALL}")
    except httpx.HTTPError as error:
        return "warning", f"{CALL} has no answer: {type(error).__name__}: {error}"
    return of_call(shown(url), answer.status_code)


async def _check(name: str, check: Callable[[], Awaitable[_Outcome]]) -> Finding:
    try:
        result, detail = await check()
    except BraidError as error:
        return _failed(name, error)
    return Finding(name, result, detail)


def _failed(name: str, error: BraidError) -> Finding:
    return Finding(name, "failed", in_commands(error))


async def _fencing(store: Store, clock: Clock) -> _Outcome:
    await check_fencing(store, clock)
    return "ok", f"{store.uri(keys.CLUSTER).removesuffix(f'/{keys.CLUSTER}')} lets one of two writers win"


async def _round_trips(store: Store, clock: Clock, size_bytes: int) -> _Outcome:
    data = clock.entropy(size_bytes)
    seconds: dict[str, list[float]] = {"put": [], "get": [], "list": [], "delete": []}
    for _ in range(_ROUNDS):
        key = keys.fence_check(clock.ulid())
        seconds["put"].append(await _timed(clock, partial(store.create, key, data)))
        try:
            seconds["get"].append(await _timed(clock, partial(_get, store, key, data)))
            seconds["list"].append(await _timed(clock, partial(_list, store, key)))
        finally:
            seconds["delete"].append(await _timed(clock, partial(store.delete, [key])))
    shown = (f"{name} {median(each) * 1000:.1f} ms" for name, each in seconds.items())
    return "ok", f"{', '.join(shown)} (median of {_ROUNDS})"


async def _timed(clock: Clock, call: Callable[[], Awaitable[object]]) -> float:
    started = clock.monotonic_seconds()
    await call()
    return clock.monotonic_seconds() - started


async def _get(store: Store, key: str, data: bytes) -> None:
    if (await store.get(key)).data != data:
        raise CommandFailed(f"{store.uri(key)} does not give back what was stored")


async def _list(store: Store, key: str) -> None:
    if key not in [info.key async for info in store.list(key)]:
        raise CommandFailed(f"{store.uri(key)} was created but is not listed: listings lag behind on this store")


async def _clock_skew(store: Store, clock: Clock) -> _Outcome:
    before_us = clock.now_us()
    told_us = await store.tell_time()
    skew_seconds = max(before_us - told_us, told_us - clock.now_us(), 0) / 1e6
    if skew_seconds > _SKEW_SECONDS:
        return "warning", (
            f"this machine and the store differ by {skew_seconds:.0f} s: run a time service (NTP); a broker "
            "here deletes nothing while they differ by more than a tenth of its grace period"
        )
    return "ok", f"this machine and the store agree within {_SKEW_SECONDS:.0f} s"


async def _signed(store: Store) -> _Outcome:
    signed = await store.presign_get(keys.CLUSTER, expires_seconds=_PRESIGNED_SECONDS)
    return (
        "ok",
        "none: uploads pass through the broker" if signed is None else "given: uploads go to the store directly",
    )


def _broker(url: str, cluster: Cluster, seconds: float) -> _Outcome:
    states = ", ".join(f"{broker.broker} {broker.state}" for broker in cluster.brokers)
    answer = (
        f"{shown(url)} answers in {seconds * 1000:.1f} ms: version {cluster.version}, "
        f"cluster {cluster.cluster}, {states}"
    )
    if cluster.version != VERSION:
        return "warning", f"{answer}; this mq is version {VERSION}"
    return "ok", answer


async def _readiness(url: str) -> _Outcome:
    """The broker's own report about its store."""
    try:
        async with httpx.AsyncClient(timeout=_READINESS_SECONDS, verify=broker_tls(), trust_env=False) as http:
            answer = await http.get(f"{url}/readyz")
            if answer.status_code not in (HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE):
                return "failed", f"{shown(url)}/readyz is answered {answer.status_code} {answer.reason_phrase}"
            told = answer.json()
        # Brokers of earlier versions name neither.
        problems, status = told.get("problems", []), told.get("status", "ok" if told["ready"] else "not ready")
    except (httpx.HTTPError, ValueError, LookupError, AttributeError) as error:
        return "failed", f"/readyz has no answer that can be read: {type(error).__name__}: {error}"
    if not problems:
        return ("ok" if told["ready"] else "failed"), f"{shown(url)}/readyz says {status}"
    outcomes = [_problem(each) for each in problems if each["type"] != "store-stalled" or each is problems[0]]
    worst: Result = "failed" if any(result == "failed" for result, _ in outcomes) else "warning"
    return worst, f"{status}: {'. '.join(detail for _, detail in outcomes)}"


def _problem(told: Mapping[str, Any]) -> _Outcome:
    """The outcome of a problem that a broker reports. A broker of a later version may report other kinds."""
    match told["type"]:
        case "store-stalled":
            return "failed", (
                f"{told['operation']} of {told['key']!r} without success for {told['seconds']} s: {told['detail']}. "
                f"{_REMEDIES.get(told['cause'], _USUAL_REMEDY)}"
            )
        case "clock-off":
            return "warning", f"{told['detail']}. Run a time service (NTP)"
        case kind:
            return "warning", f"{kind}: {told.get('detail', '')}"


async def _topics(client: AsyncClient) -> _Outcome:
    count = 0
    async for _ in client.topics():
        count += 1
    return "ok", f"{count} in the catalogue{_of_what_is_seen()}"


def _of_what_is_seen() -> str:
    """A note on what is seen: brokers show a principal only what it may observe."""
    shown = any(os.environ.get(each) for each in (TOKEN_VARIABLE, TOKEN_FILE_VARIABLE, CLIENT_CERT_VARIABLE))
    return ", among the topics that you may observe" if shown else ""


def _damage(cluster: Cluster) -> _Outcome:
    """The findings of the scrubs of all brokers, and of the readers of this one."""
    damaged = cluster.damaged
    if not damaged:
        return "ok", f"nothing is known to be damaged{_of_what_is_seen()}"
    objects = sum(each.objects for each in damaged)
    names = ", ".join(each.topic for each in damaged[:_TOPICS_NAMED]) + (", …" if len(damaged) > _TOPICS_NAMED else "")
    return "failed", (
        f"{objects} damaged or missing objects, of topics {names}: mq topic describe names them. Put them back from a "
        "copy of the store"
    )
