import re

import pytest

import braidmq.errors as errors
from braidmq.errors import BraidMQError, Problem, error_of
from braidmq.positions import PositionRange


def problem(slug: str, status: int, *, retryable: bool = False, **extras: object) -> Problem:
    return Problem(slug, slug, status, f"about {slug}", retryable, extras)


@pytest.mark.parametrize(
    ("slug", "status", "kind"),
    [
        ("topic-not-found", 404, errors.TopicNotFound),
        ("segment-not-found", 404, errors.SegmentNotFound),
        ("message-not-found", 404, errors.NotFound),
        ("invalid-name", 422, errors.InvalidName),
        ("invalid-config", 422, errors.InvalidConfig),
        ("invalid-request", 400, errors.InvalidRequest),
        ("invalid-marker", 400, errors.InvalidMarker),
        ("invalid-reference", 422, errors.InvalidReference),
        ("position-expired", 410, errors.PositionExpired),
        ("body-too-large", 413, errors.BodyTooLarge),
        ("unsupported-media-type", 415, errors.InvalidRequest),
        ("front-store-full", 429, errors.FrontStoreFull),
        ("unauthenticated", 401, errors.Unauthenticated),
        ("forbidden", 403, errors.Forbidden),
        ("draining", 503, errors.Unavailable),
        ("owner-silent", 503, errors.Unavailable),
        ("broker-unreachable", 503, errors.Unavailable),
        ("topic-conflict", 409, errors.Conflict),
        ("topic-exists", 412, errors.TopicExists),
        ("policy-changed", 412, errors.PolicyChanged),
        ("no-other-broker", 409, errors.Conflict),
        ("internal", 500, errors.BrokerFailed),
        ("something-newer", 418, errors.InvalidRequest),
    ],
)
def test_each_problem_has_its_exception(slug: str, status: int, kind: type[BraidMQError]) -> None:
    failure = error_of(problem(slug, status), publishing=False)
    assert type(failure) is kind
    assert failure.status == status
    assert str(failure) == f"about {slug} [{slug}, HTTP {status}]"


def test_the_broker_has_the_last_word_on_retrying() -> None:
    assert error_of(problem("draining", 503, retryable=True), publishing=False).retryable
    assert not error_of(problem("draining", 503, retryable=False), publishing=False).retryable


def test_a_publish_that_failed_inside_the_broker_has_an_unknown_outcome() -> None:
    failure = error_of(problem("internal", 500), publishing=True)
    assert type(failure) is errors.OutcomeUnknown
    assert not failure.retryable


@pytest.mark.parametrize("retryable", [False, True], ids=["final", "retryable"])
def test_a_publish_whose_owner_is_silent_has_an_unknown_outcome(retryable: bool) -> None:
    """Without an id it must not be sent again, whatever the broker says about reads."""
    failure = error_of(problem("owner-silent", 503, retryable=retryable), publishing=True)
    assert type(failure) is errors.OutcomeUnknown and not failure.retryable


def test_a_publish_that_may_be_repeated_is_not_unknown() -> None:
    assert type(error_of(problem("draining", 503, retryable=True), publishing=True)) is errors.Unavailable


def test_an_incomplete_publish_lists_what_was_acknowledged() -> None:
    positions = [{"segment": 2, "offset": 10, "count": 3}]
    failure = error_of(problem("publish-incomplete", 503, positions=positions), publishing=True)
    assert isinstance(failure, errors.PublishIncomplete)
    assert isinstance(failure, errors.OutcomeUnknown)
    assert failure.positions == (PositionRange(2, 10, 3),)


def test_expired_positions_and_large_bodies_say_what_would_work() -> None:
    expired = error_of(problem("position-expired", 410, earliest="M"), publishing=False)
    large = error_of(problem("body-too-large", 413, limit_bytes=7), publishing=True)
    assert isinstance(expired, errors.PositionExpired)
    assert expired.earliest == "M"
    assert isinstance(large, errors.BodyTooLarge)
    assert large.limit_bytes == 7


def test_the_tree_in_the_docstring_names_every_exception() -> None:
    drawn = set(re.findall(r"[├└]── (\w+)", errors.__doc__ or "")) | {"BraidMQError"}
    defined = {name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, BraidMQError)}
    assert drawn == defined
