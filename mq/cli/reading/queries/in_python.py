"""The choice of a topic's files that count, as lines of Python for engines that run in it."""

import orjson

from mq.cli.reading.queries.stored_topic import StoredTopic

# Like `filer.segment.live_files.live_names`, without a package of ours. Most topics have nothing in `cut`.
WHICH_COUNT = """\
# Which files count, from their names (docs/file-format.md): at each offset the file that reaches furthest, from the
# first offset on that retention has kept. Roll-ups come before the owner's file at the same base, the longest first.
reached = {segment["id"]: segment["start_offset"] for segment in record["segments"]}
names = []
for name in found:
    match = re.search(r"segment=(\\d+)/(\\d{20})(?:-(\\d{20}))?\\.parquet$", name)
    if match and int(match[1]) in reached:
        segment, base, end = match.groups()
        names.append((int(segment), int(base), -int(end or 0), match[0]))
whole, cut = [], {}
for segment, base, end, name in sorted(names):
    until = reached[segment]
    if base >= until:
        whole.append(f"{folder}/{name}")
    elif -end > until:
        cut[f"{folder}/{name}"] = until
    reached[segment] = max(until, -end)
"""


def columns_of(stored: StoredTopic) -> str:
    """A line that names the columns to show."""
    return f"columns = {orjson.dumps(stored.columns).decode()}".replace('","', '", "')
