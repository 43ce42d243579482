"""Makes a broker check the store (`GET …/verification`), and reads its report line by line."""

from collections.abc import AsyncIterator

import httpx
import orjson
from pydantic import ValidationError

from braidmq.errors import ConnectionBroken, NotABroker
from braidmq.models import Verification
from braidmq.names import topic_path
from braidmq.transport.connection_errors import connection_error
from braidmq.transport.problems import address_of, refusal, told_problem
from braidmq.transport.transport import Call, Transport, Try


async def verification(transport: Transport, topic: str | None) -> AsyncIterator[Verification]:
    """Iterate over the reports about a topic, or about the cluster's records. Raises if the last one does not come."""
    call = Call("GET", f"{'/v1/cluster' if topic is None else topic_path(topic)}/verification")

    async def begin(attempt: Try) -> httpx.Response:
        response = await transport.send(call, attempt, stream=True)
        if not response.is_success:
            await response.aread()
            raise refusal(response, publishing=False)
        return response

    response = await transport.repeat(begin)
    try:
        async for line in response.aiter_lines():
            report = _report(line, response)
            yield report
            if report.is_complete:
                return
    except httpx.HTTPError as failure:
        raise connection_error(failure, response.request.url, publishing=False) from failure
    finally:
        await response.aclose()
    raise ConnectionBroken(f"the answer of {address_of(response)} ended before the check did")


def _report(line: str, response: httpx.Response) -> Verification:
    try:
        document = orjson.loads(line)
        if "problem" in document:
            raise told_problem(document["problem"])
        return Verification.model_validate(document)
    except (orjson.JSONDecodeError, ValidationError, TypeError) as failure:
        raise NotABroker(f"{address_of(response)} gave an unexpected line: {failure}") from failure
