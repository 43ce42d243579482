"""Check that a refusal is as the interface promises: problem+json that says what would be right."""

from typing import Any

import httpx

FIELDS = {"type", "title", "status", "detail", "retryable"}


def check_problem(response: httpx.Response, status: int, slug: str, *parts: str) -> dict[str, Any]:
    """Assert status, type and shape, and that the detail contains each of `parts`. Returns the document."""
    assert response.status_code == status, response.text[:500]
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    assert problem.keys() >= FIELDS, problem
    assert (problem["type"], problem["status"]) == (f"urn:braidmq:{slug}", status), problem
    for part in parts:
        assert part in problem["detail"], problem
    assert ("retry-after" in response.headers) == problem["retryable"]
    return problem
