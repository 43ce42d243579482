"""The content of a policy, as plain data: additional grants, revocations, and quotas of principals.

As JSON, with the same fields in the interface and in the object on the store:

    {
     "grants": [{"principal": "https://id.example.org#*", "grants": ["topic:orders-*:read"]}],
     "revoked_tokens": [{"id": "01M8DB7GA32XEH6VY1BHWP9N2R", "until": "2027-01-01T00:00:00Z"}],
     "revoked_principals": [{"principal": "shop", "before": "2026-11-27T05:00:00Z"}],
     "quotas": [{"principal": "shop*", "requests_per_second": 100}]
    }
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from filer.errors import InvalidInput
from filer.nearest import unknown_name
from filer.times import parse_rfc3339, rfc3339_short
from mq.base.errors import Revoked
from mq.security.grants import Grant, Grants, parse_grant, parse_grants
from mq.security.policy.limits import Limits, known_limits, limits_of
from mq.security.policy.newer import FIELDS, REVOKED, known_entry, names_of
from mq.security.policy.subjects import Subjects, subjects_of, text_of
from mq.security.principal import Principal

SECTIONS = tuple(FIELDS)
MOST_BYTES = 1024 * 1024
MOST_ENTRIES = {"grants": 1000, "revoked_tokens": 10_000, "revoked_principals": 10_000, "quotas": 1000}
EXAMPLE = '{"grants": [{"principal": "https://id.example.org#*", "grants": ["topic:orders-*:read"]}]}'
_KEPT_US = 60 * 1_000_000
"""A revocation outlives its token by that: clocks differ, and tokens count a little longer than they say."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SubjectGrants:
    """Grants that these principals have besides those of their credential."""

    subjects: Subjects
    grants: Grants


@dataclass(frozen=True, slots=True)
class SubjectLimits:
    """The limits of each of these principals."""

    subjects: Subjects
    limits: Limits


@dataclass(frozen=True, slots=True)
class Policy:
    """One version of a policy. `tokens` has the end of each revoked token.

    `principals` has a time for each principal: credentials from before are revoked. Times are in microseconds since the
    Unix epoch. `unknown` names what a newer version has written in it, and this one does not understand. `not_revoked`
    names the revocations among that, which do not count.
    """

    version: int = 0
    grants: tuple[SubjectGrants, ...] = ()
    tokens: tuple[tuple[str, int], ...] = ()
    principals: tuple[tuple[str, int], ...] = ()
    quotas: tuple[SubjectLimits, ...] = ()
    unknown: tuple[str, ...] = ()
    not_revoked: tuple[str, ...] = ()

    def sections(self) -> dict[str, list[dict[str, Any]]]:
        """Its sections, as in JSON."""
        return {
            "grants": [
                {"principal": each.subjects.text, "grants": [str(grant) for grant in each.grants.all]}
                for each in self.grants
            ],
            "revoked_tokens": [{"id": id_, "until": rfc3339_short(until_us)} for id_, until_us in self.tokens],
            "revoked_principals": [
                {"principal": name, "before": rfc3339_short(before_us)} for name, before_us in self.principals
            ],
            "quotas": [{"principal": each.subjects.text, **each.limits.given()} for each in self.quotas],
        }

    def after(self, before: "Policy", now_us: int) -> "Policy":
        """This policy as the version that follows another. Leaves out revocations of tokens that have ended."""
        tokens = tuple((id_, until_us) for id_, until_us in self.tokens if now_us < until_us + _KEPT_US)
        return replace(self, version=before.version + 1, tokens=tokens)


class Decisions:
    """A policy, prepared for decisions about many principals."""

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy or Policy()
        self._tokens = frozenset(id_ for id_, _ in self._policy.tokens)
        self._principals = dict(self._policy.principals)

    def applied(self, principal: Principal) -> Principal:
        """The principal with the grants that the policy gives. Raises `Revoked` if its credential is revoked.

        A credential without a time of issue counts as older than any other.
        """
        if principal.token_id in self._tokens:
            raise Revoked("the token is revoked: get a new one", principal.name)
        before_us = self._principals.get(principal.name)
        issued = principal.issued_seconds
        if before_us is not None and (issued is None or issued * 1e6 < before_us):
            since = rfc3339_short(before_us)
            raise Revoked(
                f"credentials of {principal.name!r:.210} from before {since} are revoked: get a new one", principal.name
            )
        return replace(principal, grants=Grants([*principal.grants.all, *self.grants_of(principal.name)]))

    def grants_of(self, name: str) -> list[Grant]:
        """The grants of a principal by the policy."""
        return [grant for each in self._policy.grants if each.subjects.match(name) for grant in each.grants.all]

    def limits_of(self, name: str) -> Limits | None:
        """The limits of a principal by the first quota that matches it; None if none does."""
        return next((each.limits for each in self._policy.quotas if each.subjects.match(name)), None)


def parse_policy(document: Mapping[str, Any], version: int = 0) -> Policy:
    """The policy in a document. Raises `InvalidInput`, which names the place and what is wrong with it."""
    for name in document:
        if name not in SECTIONS:
            raise InvalidInput(unknown_name("section", name, SECTIONS))
    tokens = _entries(document, "revoked_tokens", _token)
    principals = _entries(document, "revoked_principals", _principal)
    return Policy(
        version,
        tuple(_entries(document, "grants", _subject_grants)),
        tuple(_once("revoked_tokens", "id", tokens)),
        tuple(_once("revoked_principals", "principal", principals)),
        tuple(_entries(document, "quotas", _quota)),
    )


def parse_stored_policy(document: Mapping[str, Any], version: int) -> Policy:
    """As `parse_policy`, for the object on the store. A broker of any version wrote it: newer ones may know more.

    Each entry that cannot be used is left out alone. Raises `InvalidInput` only for a section that is no list. There
    may be more entries than clients may send, since a newer version may allow more: the object's size bounds them.
    """
    unknown: set[str] = set()
    left_out = {name for name in document if name not in SECTIONS}
    grants = _stored(document, "grants", _stored_grants, unknown, left_out)
    tokens = _stored(document, "revoked_tokens", _token, unknown, left_out)
    principals = _stored(document, "revoked_principals", _principal, unknown, left_out)
    quotas = _stored(document, "quotas", _stored_quota, unknown, left_out)
    return Policy(
        version,
        tuple(grants),
        _latest(tokens),
        _latest(principals),
        tuple(quotas),
        names_of(unknown | left_out),
        names_of(name for name in left_out if name.startswith(REVOKED)),
    )


def _stored(
    document: Mapping[str, Any],
    section: str,
    parse: Callable[[Mapping[str, Any]], T],
    unknown: set[str],
    left_out: set[str],
) -> list[T]:
    """The usable entries of a section. Adds the names of unknown parts, and of entries that are left out."""
    found: list[T] = []
    listed = _list_of(document, section)
    for number, given in enumerate(listed, 1):
        known, names = known_entry(section, given)
        unknown.update(names)
        try:
            found.append(parse(known))
        except InvalidInput:
            if not names or section.startswith(REVOKED):
                left_out.add(f"{section}, {number} of {len(listed)}")
    return found


def _latest(entries: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """Each name once. Of two entries with the same name, the one that revokes more."""
    found: dict[str, int] = {}
    for name, time_us in entries:
        found[name] = max(time_us, found.get(name, time_us))
    return tuple(found.items())


def _list_of(document: Mapping[str, Any], section: str) -> list[Any]:
    listed = document.get(section, [])
    if not isinstance(listed, list):
        raise InvalidInput(f"{section} is a list of objects")
    return listed


def _entries(document: Mapping[str, Any], section: str, parse: Callable[[Mapping[str, Any]], T]) -> list[T]:
    listed, most = _list_of(document, section), MOST_ENTRIES[section]
    if len(listed) > most:
        raise InvalidInput(f"{section} has {len(listed)} entries: {most} are the most")
    found: list[T] = []
    for number, each in enumerate(listed, 1):
        try:
            found.append(parse(_checked(each, FIELDS[section])))
        except InvalidInput as error:
            raise InvalidInput(f"{section}, {number} of {len(listed)}: {error}") from error
    return found


def _checked(given: Any, fields: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(given, dict):
        raise InvalidInput("it is no object")
    for name in given:
        if name not in fields:
            raise InvalidInput(unknown_name("field", str(name), fields))
    return given


def _once(section: str, field: str, entries: Iterable[tuple[str, int]]) -> Iterable[tuple[str, int]]:
    """The same entries. Raises `InvalidInput` if two are about the same."""
    seen: set[str] = set()
    for name, time_us in entries:
        if name in seen:
            raise InvalidInput(f"{section}: two entries have the {field} {name!r:.210}")
        seen.add(name)
        yield name, time_us


def _subject_grants(given: Mapping[str, Any]) -> SubjectGrants:
    words = given.get("grants")
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise InvalidInput('it needs grants, a list of texts as "topic:orders-*:read"')
    return SubjectGrants(subjects_of(given), parse_grants(words))


def _stored_grants(given: Mapping[str, Any]) -> SubjectGrants:
    """Accepts any number of grants; each of them is known."""
    words = given.get("grants")
    if not isinstance(words, list) or not words:
        raise InvalidInput("it grants nothing")
    return SubjectGrants(subjects_of(given), Grants(parse_grant(word) for word in words))


def _stored_quota(given: Mapping[str, Any]) -> SubjectLimits:
    """Accepts an entry without a known limit."""
    return SubjectLimits(subjects_of(given), Limits(**known_limits(given)))


def _quota(given: Mapping[str, Any]) -> SubjectLimits:
    return SubjectLimits(subjects_of(given), limits_of(given))


def _token(given: Mapping[str, Any]) -> tuple[str, int]:
    return text_of(given, "id", "the id (jti) of a token"), _time(given, "until")


def _principal(given: Mapping[str, Any]) -> tuple[str, int]:
    name = text_of(given, "principal", "the whole name of a principal")
    if "*" in name:
        raise InvalidInput(f"{name!r:.210} is no name: a revocation names one principal, and * stands for many")
    return name, _time(given, "before")


def _time(given: Mapping[str, Any], field: str) -> int:
    text = given.get(field)
    try:
        if isinstance(text, str):
            return parse_rfc3339(text)
    except ValueError:
        pass
    raise InvalidInput(f"it needs {field}, a time with a zone as 2027-01-01T00:00:00Z")
