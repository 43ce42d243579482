"""Puts a context in force: its values become the variables that commands, and programs that they start, read.

An option comes before a variable, which comes before the context, which comes before the default. The values of a
context belong together: its token goes to its own brokers. So a context does not count if another address is given.
"""

import os
from collections.abc import Collection, Iterable, Mapping, MutableMapping
from dataclasses import dataclass

from braidmq.defaults import (
    CA_VARIABLE,
    CLIENT_CERT_VARIABLE,
    CLIENT_KEY_VARIABLE,
    TOKEN_FILE_VARIABLE,
    TOKEN_VARIABLE,
    URL_VARIABLE,
)
from mq.cli.context_file import Connection, contexts_path, read_contexts

CONTEXT_VARIABLE = "BRAIDMQ_CONTEXT"
_VARIABLES = {
    "url": URL_VARIABLE,
    "token_file": TOKEN_FILE_VARIABLE,
    "ca": CA_VARIABLE,
    "client_cert": CLIENT_CERT_VARIABLE,
    "client_key": CLIENT_KEY_VARIABLE,
}
_ALL = (TOKEN_VARIABLE, *_VARIABLES.values())
_TOGETHER = ((TOKEN_VARIABLE, TOKEN_FILE_VARIABLE), (CLIENT_CERT_VARIABLE, CLIENT_KEY_VARIABLE))
"""A token and the file that has one replace each other. A certificate and its key belong together."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The context that a command uses, and whether it was named on the command line."""

    name: str
    connection: Connection
    by_option: bool


def chosen_context(option: str | None, environment: Mapping[str, str] = os.environ) -> Chosen | None:
    """The context of the option, of the variable, or the current one. Raises `InvalidInput` if it does not exist."""
    name = option or environment.get(CONTEXT_VARIABLE)
    path = contexts_path(environment)
    if not name and not path.exists():
        return None
    contexts = read_contexts(path)
    name = name or contexts.current
    return Chosen(name, contexts.find(name), bool(option)) if name else None


def variables_of(chosen: Chosen, environment: Mapping[str, str]) -> dict[str, str | None]:
    """The variables that change with this context; None removes one."""
    own = {_VARIABLES[key]: value for key, value in chosen.connection.given().items()}
    if chosen.by_option:
        # A variable may be for another broker: none of them is sent to this one.
        return {name: own.get(name) for name in _ALL}
    if _is_other(environment.get(URL_VARIABLE), chosen.connection.url):
        return {}
    taken = with_what_belongs_to(name for name in _ALL if environment.get(name))
    return {name: value for name, value in own.items() if name not in taken}


def with_what_belongs_to(variables: Iterable[str]) -> set[str]:
    """These variables, and those that replace them or belong to them."""
    given = set(variables)
    return given.union(*(pair for pair in _TOGETHER if given.intersection(pair)))


def _is_other(url: str | None, known: str) -> bool:
    """Whether an address, or one of several, is not among the known ones."""
    return bool(url) and not _each_of(str(url)) <= _each_of(known)


def _each_of(urls: str) -> set[str]:
    return {url.strip().rstrip("/") for url in urls.split(",")}


class ContextInForce:
    """The variables that a context has set, until the command's address is known."""

    def __init__(self) -> None:
        self._url: str | None = None
        self._before: dict[str, str | None] = {}

    def apply(
        self,
        option: str | None,
        environment: MutableMapping[str, str] = os.environ,
        *,
        given: Collection[str] = (),
    ) -> None:
        """Put the chosen context in force, if any. `given` are variables that options have set before.

        Raises `InvalidInput` and `OSError`.
        """
        self._url, self._before = None, {}
        chosen = chosen_context(option, environment)
        if chosen is None:
            return
        kept = with_what_belongs_to(given)
        changed = {name: value for name, value in variables_of(chosen, environment).items() if name not in kept}
        self._url = chosen.connection.url
        self._before = {name: environment.get(name) for name in changed}
        _change(changed, environment)

    def leave_unless_for(self, url: str | None, environment: MutableMapping[str, str] = os.environ) -> None:
        """Take the context out of force for a command with another address: everything is as it was before."""
        if self._url is not None and _is_other(url, self._url):
            self.leave(environment)

    def leave(self, environment: MutableMapping[str, str] = os.environ) -> None:
        """Take any context out of force: everything is as it was before."""
        before, self._before, self._url = self._before, {}, None
        _change(before, environment)


def _change(variables: Mapping[str, str | None], environment: MutableMapping[str, str]) -> None:
    for name, value in variables.items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value


IN_FORCE = ContextInForce()
"""The context in force in this process."""
