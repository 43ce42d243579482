"""Decides which files of a segment to roll up: pure functions of the listed files."""

from collections.abc import Sequence

from filer.upkeep.rollup import NEWEST_KEPT, SETTLED_BYTES
from pipeline.topic_files import LiveFile, SegmentFiles

LARGE_SHARE = 2
"""A file of at least `rollup_bytes / LARGE_SHARE` stays as it is: any two smaller files fit into one roll-up.

A file of `SETTLED_BYTES` or more stays too, however large roll-ups may be.
"""


def movable(listed: SegmentFiles, *, older_than_us: int) -> Sequence[LiveFile]:
    """Return the leading files that may be rolled up.

    In a sealed segment, all files but the one with the seal. In an open segment, the files written before
    `older_than_us`, without the newest few. Its owner rolls up younger files, and from the names of the newest files a
    recovery sees where the log continues.
    """
    files = listed.files
    if listed.segment.state == "sealed":
        seal = listed.segment.seal_offset
        # If it is not known which file has the seal, it is the last one.
        return files[:-1] if seal is None else [file for file in files if file.name.base != seal]
    eligible = files[:-NEWEST_KEPT]
    young = (index for index, file in enumerate(eligible) if file.modified_us > older_than_us)
    return eligible[: next(young, len(eligible))]


def plan_compaction(files: Sequence[LiveFile], *, rollup_bytes: int, most_files: int) -> list[list[LiveFile]]:
    """Return runs of consecutive files without a gap, each to become one file of about `rollup_bytes` at most.

    Every run reduces the number of files, so repeated plans come to an end. Small files compress better together, so a
    roll-up may be small enough to be part of the next plan.
    """
    runs: list[list[LiveFile]] = []
    run: list[LiveFile] = []
    size_bytes = 0
    for file in files:
        large = file.size_bytes >= min(rollup_bytes / LARGE_SHARE, SETTLED_BYTES)
        is_behind_gap = bool(run) and run[-1].stop != file.start
        if large or is_behind_gap or size_bytes + file.size_bytes > rollup_bytes or len(run) == most_files:
            runs.append(run)
            run, size_bytes = [], 0
        if not large:
            run.append(file)
            size_bytes += file.size_bytes
    return [each for each in (*runs, run) if len(each) > 1]


def settled(listed: SegmentFiles) -> Sequence[LiveFile]:
    """Return a sealed segment's files that no roll-up will ever replace, neither a broker's nor one of this job.

    These are the seal, the large files, and those between two of them: a roll-up takes two or more files.
    """
    if listed.segment.state != "sealed":
        return ()
    files = movable(listed, older_than_us=0)
    stays = [True, *(file.size_bytes >= SETTLED_BYTES for file in files), True]
    large = [file for index, file in enumerate(files) if stays[index + 1] or (stays[index] and stays[index + 2])]
    return [*large, *(file for file in listed.files if file not in files)]
