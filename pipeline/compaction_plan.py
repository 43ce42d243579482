"""Which files of a segment are to be written again as larger ones: pure decisions on what was listed."""

from collections.abc import Sequence

from filer.rollup import NEWEST_KEPT, SETTLED_BYTES
from pipeline.topic_files import LiveFile, SegmentFiles

LARGE_SHARE = 2
"""A file of at least one part in so many of `rollup_bytes` stays: any two that are smaller fit into one roll-up.

So does one of `SETTLED_BYTES`, however large roll-ups may be.
"""


def movable(listed: SegmentFiles, *, older_than_us: int) -> Sequence[LiveFile]:
    """The leading files that may be rolled up.

    Of a sealed segment all but the one that was put with the seal. Of an open one those written before
    `older_than_us`, without the newest few: its owner rolls up what is younger, and the names there tell a recovery
    that the log goes on.
    """
    files = listed.files
    if listed.segment.state == "sealed":
        seal = listed.segment.seal_offset
        # Where it is not known which file that was, it is the last.
        return files[:-1] if seal is None else [file for file in files if file.name.base != seal]
    eligible = files[:-NEWEST_KEPT]
    young = (place for place, file in enumerate(eligible) if file.modified_us > older_than_us)
    return eligible[: next(young, len(eligible))]


def plan_compaction(files: Sequence[LiveFile], *, rollup_bytes: int, most_files: int) -> list[list[LiveFile]]:
    """Runs of files that follow each other, each to become one file of about `rollup_bytes` at most.

    Every run makes fewer files of more; so repeating it comes to an end. Small files compress better together: the
    result of one plan may be small enough to be part of the next.
    """
    runs: list[list[LiveFile]] = []
    run: list[LiveFile] = []
    size_bytes = 0
    for file in files:
        large = file.size_bytes >= min(rollup_bytes / LARGE_SHARE, SETTLED_BYTES)
        if large or size_bytes + file.size_bytes > rollup_bytes or len(run) == most_files:
            runs.append(run)
            run, size_bytes = [], 0
        if not large:
            run.append(file)
            size_bytes += file.size_bytes
    return [each for each in (*runs, run) if len(each) > 1]


def settled(listed: SegmentFiles) -> Sequence[LiveFile]:
    """The files of a sealed segment that no roll-up will ever stand for, a broker's or a compaction's of any size.

    That are the large ones, and those that have only such beside them: a roll-up takes two or more.
    """
    if listed.segment.state != "sealed":
        return ()
    files = movable(listed, older_than_us=0)
    stays = [True, *(file.size_bytes >= SETTLED_BYTES for file in files), True]
    return [file for place, file in enumerate(files) if stays[place + 1] or (stays[place] and stays[place + 2])]
