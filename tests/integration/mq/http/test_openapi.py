"""The OpenAPI document against a running broker: nothing that fits it, or just does not, makes a 5xx."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from hypothesis.strategies import sampled_from
from schemathesis import GenerationMode, Response
from schemathesis.checks import not_a_server_error
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from filer.clock import SystemClock
from filer.stores.memory_store import MemoryStore
from tests.support.broker.described_answers import check_answer, document
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem
from tests.support.thoroughness import THOROUGH, few_or_many
from tests.support.token_maker import TokenMaker

# Half a minute of processor time, of which busy machines give little.
pytestmark = pytest.mark.timeout(400)

EXAMPLES = few_or_many(3, 8)
# Making examples takes longest: ordinary runs have those of one mode for each broker.
OPEN_MODES = [GenerationMode.POSITIVE] if not THOROUGH else list(GenerationMode)
TOKEN_MODES = [GenerationMode.NEGATIVE] if not THOROUGH else list(GenerationMode)
START_SECONDS = 30
REQUEST_SECONDS = 10


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A broker that serves everybody on this machine."""
    with in_a_thread({}) as served:
        yield served


@contextlib.contextmanager
def in_a_thread(headers: dict[str, str], **settings: Any) -> Iterator[str]:
    """A broker with a topic, on a loop of its own: schemathesis waits for each answer. `headers` are good there."""
    addresses: list[str] = []
    started, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        async with http_broker(MemoryStore(), **settings) as broker:
            broker.client.headers.update(headers)
            await broker.client.put("/v1/topics/t", json={"segments": 2})
            await broker.client.post("/v1/topics/t/messages", json={"messages": [{"value": n} for n in range(5)]})
            addresses.append(broker.url)
            started.set()
            while not stop.is_set():
                await asyncio.sleep(0.02)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(START_SECONDS)
    yield addresses[0]
    stop.set()
    thread.join(START_SECONDS)


def test_no_request_makes_a_server_error(url: str) -> None:
    """Not by schemathesis' own pytest plugin, which does not fit every pytest; its cases and checks are the same."""
    assert _try_all(url, OPEN_MODES, [{}]) >= 20


def test_nor_does_one_with_whatever_token(tmp_path: Path) -> None:
    """A broker that asks for tokens, and has an audit trail: a good one, one with few rights, a broken one, none."""
    maker = TokenMaker(now_seconds=SystemClock().now_us() / 1e6)
    (tmp_path / "keys.json").write_bytes(maker.key_set)
    good = {"authorization": f"Bearer {maker.token('topic:*:*', 'cluster:*')}"}
    few = {"authorization": f"Bearer {maker.token('topic:t:read')}"}
    broken = {"authorization": good["authorization"][:-7]}
    with in_a_thread(good, authorizer="tokens", token_keys=tmp_path / "keys.json") as url:
        assert _try_all(url, TOKEN_MODES, [good, good, good, few, broken, {}]) >= 20


def _try_all(url: str, modes: Sequence[GenerationMode], credentials: list[dict[str, str]]) -> int:
    """Try every operation with one of the credentials, of which the first may do everything; returns how many."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json", headers=credentials[0])
    tried = 0
    for result in schema.get_all_operations():
        operation = result.ok()
        if not operation.path.endswith("/subscribe"):
            for mode in modes:
                # An operation before may have deleted it.
                httpx.put(f"{url}/v1/topics/t", headers=credentials[0]).raise_for_status()
                _try(operation, mode, url, credentials)
                tried += 1
    return tried


def _try(
    operation: "APIOperation[Any, Any, Any]",
    mode: GenerationMode,
    url: str,
    credentials: list[dict[str, str]],
) -> None:
    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode), credential=sampled_from(credentials))
    def one(case: "schemathesis.Case[Any]", credential: dict[str, str]) -> None:
        if "wait" in case.query:
            del case.query["wait"]
        if "topic" in case.path_parameters:
            case.path_parameters["topic"] = "t"
        _check(case, case.call(base_url=url, timeout=REQUEST_SECONDS, headers=credential))

    # A negative case needs something that can be wrong.
    with contextlib.suppress(Unsatisfiable):
        one()


def _check(case: "schemathesis.Case[Any]", response: Response) -> None:
    case.validate_response(response, checks=[not_a_server_error, content_type_conformance, response_schema_conformance])
    if response.status_code >= 400:
        assert response.headers["content-type"] == ["application/problem+json"]
        assert response.json()["detail"]


async def test_the_document_is_made_once(memory_broker: HttpBroker) -> None:
    """Many clients may ask for it at the same time."""
    answers = await asyncio.gather(*(memory_broker.client.get("/openapi.json") for _ in range(5)))
    assert len({answer.raise_for_status().content for answer in answers}) == 1
    assert (await memory_broker.client.head("/openapi.json")).status_code == 200
    check_problem(await memory_broker.client.get("/openapi.json?format=yaml"), 422, "invalid-request", "format")


@pytest.mark.parametrize(
    ("field", "why"), [({"surprise": 1}, "Additional properties"), ({"limit_bytes": "many"}, "is not of type")]
)
async def test_an_answer_that_is_not_described_fails_its_test(field: dict[str, object], why: str) -> None:
    """So that no other test overlooks one."""
    problem = {"type": "urn:braidmq:forbidden", "title": "", "status": 403, "detail": "", "retryable": False}
    headers = {"content-type": "application/problem+json"}
    request = httpx.Request("GET", "http://b/v1/topics")
    known = await document()
    check_answer(known, httpx.Response(403, headers=headers, content=orjson.dumps(problem), request=request))
    with pytest.raises(AssertionError, match=why):
        check_answer(
            known, httpx.Response(403, headers=headers, content=orjson.dumps(problem | field), request=request)
        )
    with pytest.raises(AssertionError, match="text/html"):
        check_answer(known, httpx.Response(200, headers={"content-type": "text/html"}, request=request))
    with pytest.raises(AssertionError, match="has only 200, 4XX"):
        check_answer(known, httpx.Response(202, request=request))
