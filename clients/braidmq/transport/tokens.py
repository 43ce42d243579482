"""The token that goes with every request to brokers, and to no other server."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from braidmq.defaults import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE
from braidmq.errors import InvalidArgument
from filer.clock import Clock

LOOK_SECONDS = 1.0
"""This often a file is checked: renewing a token in it stops no client."""
_MOST_BYTES = 16 * 1024
_TOKEN = re.compile(r"[!-~]{1,16384}")


class Token:
    """A token that is given, or the current content of a file; without either there is none.

    Raises `InvalidArgument`, which never has the token in it.
    """

    def __init__(self, token: str | None, file: str | os.PathLike[str] | None, clock: Clock) -> None:
        if token is not None and file is not None:
            raise InvalidArgument("give a token or the file that has it, not both")
        self._file, self._clock = None if file is None else Path(file), clock
        self._looked_seconds = clock.monotonic_seconds()
        self._seen: tuple[int, int, int] | None = None
        self._headers: Mapping[str, str] = {} if token is None else _headers_of(token, "the token")
        if self._file is not None:
            self._read()

    def headers(self) -> Mapping[str, str]:
        """The headers that a request to a broker needs: `authorization`, or none."""
        if self._file is not None and self._clock.monotonic_seconds() >= self._looked_seconds + LOOK_SECONDS:
            self._looked_seconds = self._clock.monotonic_seconds()
            self._read()
        return self._headers

    def is_renewed(self, refused: str | None) -> bool:
        """Whether the file now has another token than the request that a broker has just refused.

        `refused` is that request's header `authorization`: another request may have read the file meanwhile.
        """
        if self._file is None or refused is None:
            return False
        self._read()
        return self._headers["authorization"] != refused

    def _read(self) -> None:
        """Take the file's content, if it has changed."""
        assert self._file is not None
        try:
            status = self._file.stat()
            seen = (status.st_ino, status.st_mtime_ns, status.st_size)
            if seen == self._seen:
                return
            with self._file.open("rb") as file:
                text = file.read(_MOST_BYTES)
        except OSError as error:
            if self._seen is not None:
                return  # a renewal may remove it for a moment: the token before is as good as it was
            raise InvalidArgument(f"the token's file {str(self._file)!r} cannot be read: {error.strerror}") from error
        self._headers = _headers_of(text.decode("utf-8", "replace"), f"the token in the file {str(self._file)!r}")
        self._seen = seen


def default_token() -> str | None:
    """The token of the variable `BRAIDMQ_TOKEN`."""
    return os.environ.get(TOKEN_VARIABLE) or None


def default_token_file() -> str | None:
    """The token's file, by the variable `BRAIDMQ_TOKEN_FILE`."""
    return os.environ.get(TOKEN_FILE_VARIABLE) or None


def token_of(token: str | None, file: str | os.PathLike[str] | None, headers: Mapping[str, str], clock: Clock) -> Token:
    """The given token, or else that of the environment: `BRAIDMQ_TOKEN` comes before `BRAIDMQ_TOKEN_FILE`.

    A client with a header `authorization` needs none. Raises `InvalidArgument` if both are given.
    """
    if any(name.lower() == "authorization" for name in headers):
        if token is not None or file is not None:
            raise InvalidArgument("give a token or a header 'authorization', not both")
        return Token(None, None, clock)
    if token is None and file is None:
        token = default_token()
        file = default_token_file() if token is None else None
    return Token(token, file, clock)


def _headers_of(given: str, what: str) -> Mapping[str, str]:
    if not isinstance(given, str):
        raise InvalidArgument(f"{what} is a {type(given).__name__}: a token is text")
    token = given.strip()
    if not token:
        raise InvalidArgument(f"{what} is empty")
    if token[:7].lower() == "bearer ":
        raise InvalidArgument(f"{what} begins with 'Bearer ': leave that away")
    if not _TOKEN.fullmatch(token):
        raise InvalidArgument(f"{what} is no token: a token has printable ASCII characters and no spaces")
    return {"authorization": f"Bearer {token}"}
