"""Checks the chain of a segment's files: that each file was written behind the one before it. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from filer.format.segment_file import Footer
from filer.keys import FileName


@dataclass(frozen=True, slots=True)
class Link:
    """A file that counts, and what its footer says about its neighbours (docs/file-format.md, "Digests")."""

    name: FileName
    end: int
    previous: str
    link: str

    @classmethod
    def of(cls, name: FileName, footer: Footer) -> "Link":
        """By the file's footer, which has been checked."""
        return cls(name, footer.end, footer.previous, footer.link)


@dataclass(frozen=True, slots=True)
class ChainBreak:
    """Two neighbours that were not written one after the other. One of them was exchanged, or put back."""

    before: FileName
    after: FileName


@dataclass(frozen=True, slots=True)
class ChainVerdict:
    """The breaks of a chain, how many neighbours are shown to belong together, and how many could not be checked.

    Unchecked are files of version 0.1, files whose writer did not know the file before, and neighbours that overlap or
    have a gap between them, which offsets show.
    """

    breaks: tuple[ChainBreak, ...] = ()
    closed: int = 0
    unchecked: int = 0


def check_chain(links: Iterable[Link]) -> ChainVerdict:
    """Compare neighbours, given the files that count in the order of offsets."""
    breaks: list[ChainBreak] = []
    closed = unchecked = 0
    before: Link | None = None
    for each in links:
        if before is not None:
            if not before.link or not each.previous or before.end != each.name.base:
                unchecked += 1
            elif before.link == each.previous:
                closed += 1
            else:
                breaks.append(ChainBreak(before.name, each.name))
        before = each
    return ChainVerdict(tuple(breaks), closed, unchecked)
