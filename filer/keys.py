"""Every key that BraidMQ writes to a store, relative to the store's prefix. No other module builds keys.

| key | changes | holds |
| --- | --- | --- |
| `cluster/cluster.json` | never, once created | format version, cluster id, signing secret for upload ids |
| `cluster/settings.json` | never, once created | the same again with a check, and the grace period |
| `cluster/settings-copy.json` | never, once created | the same as `cluster/settings.json` |
| `cluster/incarnation.json` | by compare-and-swap | the last broker without a cluster, and whether it has stopped |
| `cluster/policy.json` | by compare-and-swap | grants, revocations and quotas of principals |
| `cluster/fence-check/<ulid>` | created and deleted at start | a probe of the store's conditional writes |
| `cluster/store-proof/<ulid>` | created and deleted at start | what other brokers read back: they have the same store |
| `cluster/scrub/<topic>.json` | by compare-and-swap | when the scrub has read which segment, and what it found |
| `topics/<topic>/topic.json` | by compare-and-swap | configuration, segments, the transition under way |
| `topics/<topic>/history/<first:020d>-<last:020d>.json` | never | segments that were moved out of topic.json |
| `topics/<topic>/versions/<version:020d>` | never | nothing: its name says that topic.json was of that version |
| `topics/<topic>/segments/segment=<id>/<base:020d>.parquet` | never | messages from offset `base` on; maybe the seal |
| `topics/<topic>/segments/segment=<id>/<base:020d>-<end:020d>.parquet` | never | a roll-up of `[base, end)` |
| `topics/<topic>/index/<id>.snapshot` | by compare-and-swap | the in-memory index of a segment, producer windows |
| `topics/<topic>/uploads/<upload-id>` | never | a payload submitted by reference |

Segment files are deleted only a grace period after they were superseded or expired (docs/design.md §4).
"""

import re
from dataclasses import dataclass

from filer.errors import InvalidName

CLUSTER = "cluster/cluster.json"
CLUSTER_SETTINGS = "cluster/settings.json"
CLUSTER_SETTINGS_COPY = "cluster/settings-copy.json"
INCARNATION = "cluster/incarnation.json"
POLICY = "cluster/policy.json"
TOPICS = "topics/"
INTERNAL_PREFIX = "__"
"""The prefix of topics that brokers create for themselves. No client can create a topic of such a name."""
GROUPS_TOPIC = "__groups"
"""The memory of consumer groups (docs/design.md §12)."""
AUDIT_TOPIC = "__audit"
"""The audit log: which principal has changed what, and what was refused."""
RESERVED_TOPICS = frozenset({GROUPS_TOPIC, AUDIT_TOPIC})
"""The topics that brokers write. All others may only read them."""
MOST_NAME_CHARS = 200
_CHARS = rf"[A-Za-z0-9._-]{{1,{MOST_NAME_CHARS}}}\Z"
NAME_RULE = f"1 to {MOST_NAME_CHARS} of the characters A-Z a-z 0-9 . _ -, and does not begin with '.'"
"""The rule for names of topics and topic groups: no store has keys of which a part begins with a dot."""
_OTHER_RULE = NAME_RULE.replace("does not begin with '.'", "is neither '.' nor '..'")
_NAMES = {"topic": (re.compile(rf"(?!\.){_CHARS}"), NAME_RULE)}
# For consumer groups and members, which are in records: earlier versions have made some that begin with a dot.
_OTHERS = re.compile(rf"(?!\.{{1,2}}\Z){_CHARS}"), _OTHER_RULE
_ULID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}\Z")
_FILE = re.compile(r"(\d{20})(?:-(\d{20}))?\.parquet\Z")
_LINEAGE = re.compile(r"(\d{20})-(\d{20})\.json\Z")


def check_name(name: str, *, what: str = "topic") -> str:
    """The name itself if a topic, a group or a member may have it. Raises `InvalidName` with the rule otherwise."""
    pattern, rule = _NAMES.get(what, _OTHERS)
    if not pattern.match(name):
        shown = name if len(name) <= 60 else name[:60] + "…"
        raise InvalidName(f"{shown!r} cannot name a {what}: a name has {rule}")
    return name


def is_internal(topic: str) -> bool:
    """Whether brokers alone may create topics of this name. A user of an earlier version may have created it."""
    return topic.startswith(INTERNAL_PREFIX)


@dataclass(frozen=True, slots=True, order=True)
class FileName:
    """The name of a segment file: its first offset and, for a roll-up, the offset after its last."""

    base: int
    end: int | None = None

    @property
    def rolled(self) -> bool:
        """Whether this is a roll-up."""
        return self.end is not None

    def __str__(self) -> str:
        if self.end is None:
            return f"{self.base:020d}.parquet"
        return f"{self.base:020d}-{self.end:020d}.parquet"

    @classmethod
    def parse(cls, name: str) -> "FileName | None":
        """The name of a segment file from the last part of a key; None for anything else."""
        match = _FILE.match(name.rpartition("/")[2])
        if match is None:
            return None
        return cls(int(match[1]), None if match[2] is None else int(match[2]))


def fence_check(ulid: str) -> str:
    """A probe object of the start-up check."""
    return f"cluster/fence-check/{ulid}"


def store_proof(ulid: str) -> str:
    """The object that a starting broker has written for the others to read. Raises `InvalidName` if it is no ULID."""
    if not _ULID.match(ulid):
        raise InvalidName(f"{ulid[:60]!r} is not a ULID")
    return f"cluster/store-proof/{ulid}"


def scrub_record(topic: str) -> str:
    """What the background scrub has read of a topic. This lies apart from the topic, which does not depend on it."""
    return f"cluster/scrub/{topic}.json"


def topic(topic: str) -> str:
    """The topic's own record."""
    return f"topics/{topic}/topic.json"


def topic_of(key: str) -> str | None:
    """The topic that the object of this key belongs to; None if it belongs to none."""
    name, slash, _ = key.removeprefix(TOPICS).partition("/")
    return name if key.startswith(TOPICS) and slash else None


def topic_folder(topic: str) -> str:
    """The folder of all objects of a topic; `_ref.uri` is relative to it."""
    return f"topics/{topic}/"


def history(topic: str, first: int, last: int) -> str:
    """The segments `first` to `last`, which left topic.json together. These keys sort in the order of the segments."""
    return f"{history_folder(topic)}{first:020d}-{last:020d}.json"


def history_from(topic: str, first: int) -> str:
    """A key after every history that begins before that segment, and before every other history."""
    return f"{history_folder(topic)}{first:020d}"


def history_bounds(key: str) -> tuple[int, int] | None:
    """The first and the last segment of a history file; None if the key is not that of a history file."""
    match = _LINEAGE.match(key.rpartition("/")[2])
    return None if match is None else (int(match[1]), int(match[2]))


def history_folder(topic: str) -> str:
    """The folder of all history files."""
    return f"topics/{topic}/history/"


def version_mark(topic: str, version: int) -> str:
    """The mark of a version of topic.json. These keys sort in the order of the versions."""
    return f"{version_marks_folder(topic)}{version:020d}"


def marked_version(key: str) -> int | None:
    """The version that a mark names; None if the key is not that of a mark."""
    name = key.rpartition("/")[2]
    return int(name) if len(name) == 20 and name.isdecimal() else None


def version_marks_folder(topic: str) -> str:
    """The folder of the marks of topic.json's versions."""
    return f"topics/{topic}/versions/"


def segments_folder(topic: str) -> str:
    """The folder for offline readers."""
    return f"topics/{topic}/segments/"


def segment_folder(topic: str, segment: int) -> str:
    """The folder of one segment's files."""
    return f"topics/{topic}/segments/segment={segment}/"


def segment_file(topic: str, segment: int, name: FileName) -> str:
    """One segment file."""
    return f"{segment_folder(topic, segment)}{name}"


def snapshots_folder(topic: str) -> str:
    """The folder of the snapshots of all segments."""
    return f"topics/{topic}/index/"


def index_snapshot(topic: str, segment: int) -> str:
    """Snapshot of a segment's index."""
    return f"{snapshots_folder(topic)}{segment}.snapshot"


def upload(topic: str, upload_id: str) -> str:
    """A payload submitted by reference."""
    return f"topics/{topic}/uploads/{upload_id}"


def uploads_folder(topic: str) -> str:
    """The folder of all uploads."""
    return f"topics/{topic}/uploads/"
