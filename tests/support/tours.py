"""The tours (docs/tours/*.md): what they have typed in, and a shell that types it in and compares what is printed.

    python -m tests.support.tours docs/tours/application-developer.md [--store s3] [--write]

types a page in here, in the folder of a fresh clone, behind the set-up of docs/tours/README.md (which has one block for
each store), unless the page has a set-up of its own. `--write` puts what was printed into the page where it differs.

- Blocks `sh` are typed in whole, and must succeed; what they print is not compared.
- Blocks with the name of a store (`console directory`) are for that store only.
- Blocks `console` have commands (`$ …`, which go on behind `\\` and within quotes) and what they print, standard error
  included, without empty lines. A line `...` stands for any lines, and "…, 2 s so far" for as many of its kind
  as there are, or none.
- Blocks `python` that begin with a comment `# NAME.py` are saved under that name.
- Times, durations, ids, markers and other figures that differ each time are compared by their form. What a command
  prints in place of one stands in its place in later commands. So is the broker that leads.
"""

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).parents[2]
TOURS = ROOT / "docs" / "tours"
STORES = ("directory", "s3")
_HOME = "/home/ada/braidmq"
_BLOCK = re.compile(r"^```(sh|console|python)(?: (\w+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_STEP_SECONDS = 900.0
_END = "--- end of the step:"
_SET_UP = "mkdir tour && cd tour"

_VOLATILE = re.compile(
    r"""
      \b0[0-9][0-9A-HJKMNP-TV-Z]{24}\b                                # ULIDs
    | \b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|\+\d\d(?::\d\d)?)?     # times
    | \b\w{3},[ ]\d\d[ ]\w{3}[ ]\d{4}[ ]\d\d:\d\d:\d\d[ ]GMT             # times in headers
    | (?<=marker":")[\w-]+(?=") | (?<=braid-marker:[ ])[\w-]+ | (?<=^id:[ ])[\w-]+ | (?<=marker=)[\w-]+   # markers
    | (?<="claim":")[\w-]+(?=") | (?<="claim":[ ]")[\w-]+(?=")        # claims of groups
    | \b\d[\d,]*(?:\.\d+)?(?=[ ](?:s|ms|min|per[ ]second|per[ ]minute|[KMG]iB|B|messages[ ]were[ ]stored)\b)
    | \b\d+\.\d+(?=s\b) | (?<=--skip[ ])\d+ | (?<="seconds":)[\d.]+ | (?<=duration_seconds=)[\d.]+ | (?<="bytes":)\d+
    | \b\d{1,3}(?:,\d{3})+\b | (?<="request_id":")[0-9a-f]{12,}-\w+
    | \bbroker-\d+\.[0-9A-Z]{26}(?=[ ]leads$)                          # whoever was there first
    | \b(?:file|s3)://\S*?(?=/topics/) | \bbroker\.[0-9A-Z]{26}
    """,
    re.VERBOSE | re.MULTILINE,
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_WAITING = re.compile(r"mq: (?:no answer from \S+: retrying|waiting for an answer from \S+), \S+ (?:s|min) so far")
# Told of what takes longer than a second.
_RATE = re.compile(r" \([\d,]+ per second\)$", re.MULTILINE)
# The last column of a table of brokers.
_LEADS = re.compile(r"(?<=\d) +leads$")
_SPACE = re.compile(r"[ \t]+|[─-]{4,}")


@dataclass(frozen=True)
class Step:
    """Something to type in, or to save; `printed` is None where that is not compared."""

    kind: str
    text: str
    printed: str | None = None
    mark: str = ""


class TourFailed(Exception):
    """A step printed something else, or failed."""


def steps_of(page: str) -> list[Step]:
    """What a page has to be done, in order."""
    return list(_steps(page))


def _steps(page: str) -> Iterator[Step]:
    for kind, mark, text in _BLOCK.findall(page):
        if kind == "console":
            yield from (
                Step(kind, *_command_of(each), mark) for each in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
            )
        elif kind == "sh" or re.match(r"# \w+\.py\n", text):
            yield Step(kind, text, mark=mark)


def _command_of(text: str) -> tuple[str, str]:
    """The command at the beginning, which goes on behind a backslash and within quotes, and what it prints."""
    lines = text.splitlines(keepends=True)
    length = 1
    while length < len(lines) and (lines[length - 1].endswith("\\\n") or "".join(lines[:length]).count("'") % 2):
        length += 1
    return "".join(lines[:length]), "".join(lines[length:])


def aligned(expected: str, actual: str) -> dict[str, str] | None:
    """What stands in place of what, if they are the same but for what differs each time; else None."""
    lines = _told_lines(actual)
    known: dict[str, str] = {}
    skips = False
    for line in _told_lines(expected):
        if line == "...":
            skips = True
            continue
        while skips and lines and _form(lines[0]) != _form(line):
            del lines[0]
        if not lines or _form(lines[0]) != _form(line):
            return None
        known |= zip(_VOLATILE.findall(line), _VOLATILE.findall(lines.pop(0)), strict=True)
        skips = False
    return known if skips or not lines else None


def _told_lines(text: str) -> list[str]:
    lines = _RATE.sub("", text).splitlines()
    return [line for line in lines if line.strip() and not _WAITING.fullmatch(line)]


def _form(line: str) -> str:
    return _SPACE.sub(" ", _LEADS.sub("", _VOLATILE.sub("#", line))).strip()


class Typist:
    """A bash in a folder, into which steps are typed. Leaving it ends whatever runs in it."""

    def __init__(self, folder: Path, environment: dict[str, str], replaced: dict[str, str] | None = None) -> None:
        """`replaced` is what stands in the commands, and in its place what is typed in."""
        self.folder, self._replaced = folder, dict(replaced or {})
        self._known: dict[str, str] = {}
        self._shell = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()
        self._shell.wait()
        for pipe in (self._shell.stdin, self._shell.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def _end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)

    def do(self, step: Step) -> str:
        """Type it in; returns what was printed, in the words of the page. Raises `TourFailed`."""
        text = step.text
        if step.kind == "python":
            text = f"cat > {text.split()[1]} << '{_END}'\n{text}{_END}\n"
        printed, code = self._type(self._typed(text))
        if step.kind != "console" and code:
            raise TourFailed(f"{step.text}exited with {code}:\n{printed}")
        return printed

    def check(self, step: Step) -> None:
        """Type it in, and compare; raises `TourFailed`."""
        printed = self.do(step)
        if step.printed is not None and not self.is_as_printed(step.printed, printed):
            raise TourFailed(f"{step.text}printed\n{printed}\nand not\n{step.printed}")

    def is_as_printed(self, expected: str, printed: str) -> bool:
        """Whether it is; if so, later commands have what was printed in place of what the page has."""
        known = aligned(expected, printed)
        self._known |= {word: now for word, now in (known or {}).items() if len(word) >= 5 and word != now}
        return known is not None

    def _typed(self, text: str) -> str:
        for word, now in (self._replaced | self._known).items():
            text = text.replace(word, now)
        return text

    def _type(self, text: str) -> tuple[str, int]:
        assert self._shell.stdin is not None and self._shell.stdout is not None
        self._shell.stdin.write(f"{text}\n_code=$?; echo; echo '{_END}' $_code\n")
        self._shell.stdin.flush()
        lines: list[str] = []
        patience = threading.Timer(_STEP_SECONDS, self._end)
        patience.start()
        try:
            for line in self._shell.stdout:
                if line.startswith(_END):
                    return self._told("".join(lines)[:-1]), int(line.removeprefix(_END))
                lines.append(line)
        finally:
            patience.cancel()
        raise TourFailed(f"the shell ended, or took more than {_STEP_SECONDS:.0f} s, in\n{text}{''.join(lines)}")

    def _told(self, text: str) -> str:
        for word, now in self._replaced.items():
            text = text.replace(now, word)
        return _COLOUR.sub("", text).replace(str(self.folder), _HOME)


def set_up(store: str) -> Step:
    """The block of docs/tours/README.md that names the store: `directory` or `s3`."""
    (step,) = (step for step in steps_of((TOURS / "README.md").read_text("utf-8")) if step.mark == store)
    return step


def main() -> None:
    """Type a page in, here."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("page", type=Path)
    arguments.add_argument("--store", choices=STORES, default="directory")
    arguments.add_argument("--write", action="store_true")
    given = arguments.parse_args()
    page = given.page.read_text("utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("BRAIDMQ_", "AWS_"))}
    failed, done = False, 0
    with contextlib.ExitStack() as stack:
        typist = stack.enter_context(Typist(Path.cwd(), environment))
        if given.write:
            stack.callback(lambda: given.page.write_text(page, "utf-8"))
        if _SET_UP not in page:
            typist.check(set_up(given.store))
        for step in steps_of(page):
            if step.mark in STORES and step.mark != given.store:
                continue
            sys.stdout.write(f"$ {step.text}")
            sys.stdout.flush()
            started = time.monotonic()
            printed = typist.do(step)
            sys.stdout.write(f"{printed}[{time.monotonic() - started:.1f} s]\n")
            if step.printed is None:
                continue
            is_right = typist.is_as_printed(step.printed, printed)
            tidy = "".join(f"{line.rstrip()}\n" for line in printed.splitlines() if line.strip())
            old, new = (f"$ {step.text}{each}" for each in (step.printed, step.printed if is_right else tidy))
            place = page.index(old, done)
            page, done = page[:place] + new + page[place + len(old) :], place + len(new)
            if is_right:
                continue
            failed = True
            sys.stdout.write(f"--- and not:\n{step.printed}---\n")
    sys.exit(1 if failed and not given.write else 0)


if __name__ == "__main__":
    main()
