"""Checks one segment file against its name and its footer, row group by row group. Pure: the caller reads the bytes."""

from filer.errors import CorruptFile
from filer.format import digests
from filer.format.segment_file import FileEnd, read_end
from filer.keys import FileName
from filer.segment.segment_log import SegmentRef
from filer.verification.verdict import Verdict


class FileCheck:
    """The check of one file of a segment, whose `end` has been read. Give it all bytes before the footer, in order.

    Raises `CorruptFile` as soon as something is wrong.
    """

    def __init__(self, ref: SegmentRef, name: FileName, end: FileEnd) -> None:
        self._end = end
        self._body = digests.Hasher()
        self._given_bytes = self._groups = 0
        footer = end.footer
        footer.check_place(ref.segment, name.base)
        if name.end is not None and name.end != footer.end:
            raise CorruptFile(f"its footer says that it ends at {footer.end}")
        if end.metadata.num_rows != footer.count:
            raise CorruptFile(f"it has {end.metadata.num_rows} messages, and its footer says {footer.count}")
        if not footer.count and not footer.sealed:
            raise CorruptFile("it has no messages and is no seal")

    def row_group(self, number: int, data: bytes) -> None:
        """Check the bytes of the next row group.

        A row group without a digest is not decoded to see whether that works: damaged bytes may end the process.
        """
        self._end.check_row_group(number, data)
        self.body(data)
        self._groups += 1

    def body(self, data: bytes) -> None:
        """Take the next bytes before the footer that are in no row group."""
        self._body.add(data)
        self._given_bytes += len(data)

    def finish(self) -> bool:
        """Whether there was anything to check it by, once all bytes were given."""
        stated = self._end.footer.digests
        if self._given_bytes != self._end.body_bytes or self._groups != self._end.metadata.num_row_groups:
            raise CorruptFile(f"{self._given_bytes} of its {self._end.body_bytes} bytes before the footer were read")
        if stated is None:
            return False
        if self._body.digest() != stated.body:
            raise CorruptFile("it is damaged: its bytes are not those of the digest in its footer")
        return True


def check_file(ref: SegmentRef, name: FileName, data: bytes) -> Verdict:
    """The condition of the segment's file of that name with these bytes."""
    key = ref.key(name)
    try:
        end = read_end(data, len(data))
        check = FileCheck(ref, name, end)
        reached = 0
        for number in range(end.metadata.num_row_groups):
            start, stop = end.row_group_range(number)
            check.body(data[reached:start])
            check.row_group(number, data[start:stop])
            reached = stop
        check.body(data[reached : end.body_bytes])
        return Verdict(key, "ok" if check.finish() else "unchecked")
    except CorruptFile as error:
        return Verdict(key, "damaged", str(error))
