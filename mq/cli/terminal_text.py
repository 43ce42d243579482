"""Text of others on a terminal: characters that would control it are escaped. In a pipe, bytes stay unchanged."""

import codecs
import re

_PLAIN = re.compile(rb"[\t\n\x20-\x7e]*\Z")
_KEPT = "\t\n"


def escaped(text: str) -> str:
    """The text with each character escaped that controls a terminal, or hides text."""
    return "".join(each if each.isprintable() or each in _KEPT else _escape(each) for each in text)


def _escape(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


class TerminalText:
    """Bytes for a terminal, in pieces. A character may be cut between two of them."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def shown(self, data: bytes | memoryview, *, is_last: bool = True) -> bytes:
        """The text to print for a piece. Bytes that are no UTF-8 are escaped too."""
        if not self._decoder.getstate()[0] and _PLAIN.match(data):
            return bytes(data)
        return escaped(self._decoder.decode(bytes(data), is_last)).encode()
