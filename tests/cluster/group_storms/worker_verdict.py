"""Whether the runs of handlers kept the order of each key."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.cluster.group_storms.verdict import Verdict
from tests.cluster.group_storms.worker_runs import Line


@dataclass(slots=True)
class _Key:
    """A key so far: its runs by worker and run, those that were done, and the last one that was not."""

    running: dict[tuple[str, str], int] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    first_missing: int = 0
    given_back: int | None = None

    def begin(self, line: Line) -> str | None:
        """A run begins; returns what is wrong with that."""
        overlaps, behind = list(self.running.values()), self.given_back
        self.running[line.worker, line.run] = line.index
        self.given_back = None
        if overlaps:
            return f"began while {overlaps} ran"
        if line.index > self.first_missing:
            return f"began before {self.first_missing} was done"
        if behind is not None and line.index > behind:
            return f"began behind {behind}, which was not done"
        return None

    def end(self, line: Line) -> None:
        """A run ends. That of a worker that was killed may have gone on to its end."""
        was_running = self.running.pop((line.worker, line.run), None) is not None
        if line.what == "done":
            self.done.add(line.index)
            while self.first_missing in self.done:
                self.first_missing += 1
        elif was_running:
            self.given_back = line.index

    def cut_off(self, worker: str) -> int:
        """A worker was killed, and its runs with it; returns how many there were."""
        cut = [run for run in self.running if run[0] == worker]
        for run in cut:
            self.given_back = self.running.pop(run)
        return len(cut)


def judge(lines: Sequence[Line], *, each: int, keys: int) -> Verdict:
    """Runs of a key never overlap, and each begins when all ahead of it are done.

    Behind a run that failed, or was cut off, none ahead of it begins. What was done may be done again: its ack may not
    have been stored. In the end all `each` messages of all keys were done.
    """
    complaints: list[str] = []
    found: defaultdict[str, _Key] = defaultdict(_Key)
    counts: Counter[str] = Counter()
    dead: set[str] = set()
    for line in lines:
        counts[line.what] += 1
        if line.what == "dead":
            dead.add(line.worker)
            counts["cut off"] += sum(key.cut_off(line.worker) for key in found.values())
        elif line.what != "began":
            found[line.key].end(line)
        # A command may begin while its worker is killed: the lease still runs, and it is ended at once.
        elif line.worker not in dead and (wrong := found[line.key].begin(line)) is not None:
            complaints.append(f"key {line.key}: {line.index} {wrong} ({line.worker}, run {line.run})")
    undone = {name: key.first_missing for name, key in found.items() if key.first_missing < each}
    complaints += [f"key {name}: {first} was never done" for name, first in undone.items()]
    if len(found) != keys:
        complaints.append(f"only {len(found)} of {keys} keys were worked on")
    told = ", ".join(f"{counts[what]:,} {what}" for what in ("began", "done", "failed", "cut off"))
    return Verdict(complaints, f"{keys:,} keys, {each * keys:,} messages; runs: {told}; {len(dead)} workers killed")


def around(lines: Sequence[Line], complaint: str) -> list[str]:
    """All runs of the key that a complaint names, and the ends of workers."""
    key = complaint.removeprefix("key ").partition(":")[0]
    return [f"{n}: {line.written.decode().strip()}" for n, line in enumerate(lines) if line.key in (key, "-")]
