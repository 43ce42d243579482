"""Random damage to single objects of a topic: `python -m tests.cluster.faults.object_trials --trials 1000 --seed 1`.

Each trial copies a topic that has an object of every kind, and damages one: with no broker running, or under load. Then
every kind of reader must give right answers or an error that names the object, every other segment must take and give
messages, nothing may be stored under the name of what is missing, and where the object is put back everything must be
as before.
"""

import argparse
import asyncio
import contextlib
import logging
import random
import re
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import httpx

from filer import keys
from filer.keys import FileName
from filer.topic.topic_state import TopicState
from tests.cluster.faults.trials.trial_journal import Entry, Journal
from tests.cluster.faults.trials.trial_readers import (
    READERS,
    Address,
    Read,
    Reading,
    read_by,
    read_history,
    read_payloads,
    read_segment,
    spark_readers,
)
from tests.cluster.faults.trials.trial_topic import (
    BUSY_UPKEEP,
    NO_UPKEEP,
    TOPIC,
    Expected,
    Place,
    Publisher,
    broker_on,
    choose_keys,
    key_in,
    route,
)
from tests.cluster.faults.trials.trial_worlds import Template, World, worlds
from tests.support.spark.session import spark_session
from tests.support.store.object_faults import (
    KINDS,
    Damage,
    Kind,
    Manner,
    by_kind,
    manners_of,
    put_back,
    strike,
)

# A damaged file that is put back with its old time and size is read again every 10 s.
HEAL_SECONDS = 25.0
TRIES, RETRY_SECONDS = 4, 0.2
STRIKES = 10
LOAD_MESSAGES = 12
SHOWN_CHARS = 600
EVERY_TIME = ("browse", "arrow", "subscribe", "files", "python client")
BY_TURNS = ("compaction", "export")
WHOLE_TOPIC: tuple[Kind, ...] = ("topic.json", "version mark", "history", "cluster.json", "settings.json")
NAMES_TAKEN: tuple[Kind, ...] = ("segment file", "seal")
"""Names that nobody may take again. A roll-up may be written anew from its originals, while these stand."""
_SEGMENT = re.compile(r"/segment=(\d+)/|/index/(\d+)\.snapshot")


@dataclass(frozen=True)
class Plan:
    """One trial: what is damaged how and when, and which of the slow readers look."""

    number: int
    seed: str
    kind: Kind
    manner: Manner
    under_load: bool
    busy_upkeep: bool
    slow_reader: str

    @classmethod
    def draw(cls, seed: int, number: int) -> "Plan":
        """The trial of that number. Each kind, manner and moment comes equally often."""
        chance = random.Random(f"{seed} {number}")
        kind = chance.choice(KINDS)
        return cls(
            number,
            f"{seed} {number}",
            kind,
            chance.choice(manners_of(kind)),
            chance.random() < 0.5,
            chance.random() < 0.5,
            chance.choice(BY_TURNS),
        )

    def __str__(self) -> str:
        moment = "under load" if self.under_load else "at rest"
        return f"trial {self.number}: {self.manner} {self.kind} {moment}{', upkeep' if self.busy_upkeep else ''}"


@dataclass
class Outcome:
    """What came of a trial. `told` are the errors that named the object."""

    plan: Plan
    damage: Damage | None = None
    acknowledged: int = 0
    told: int = 0
    invisible: bool = False
    """What names alone cannot show: the newest file of an open segment, or a record of the history, is gone."""
    complaints: list[str] = field(default_factory=list)


class Trial:
    """One trial on a copy of the topic."""

    def __init__(self, plan: Plan, world: World, template: Template, more_readers: Mapping[str, Read]) -> None:
        self._more_readers = more_readers
        self._plan, self._world, self._objects = plan, world, world.objects
        self._chance = random.Random(plan.seed + " choices")
        self._expected = template.expected.copy()
        self._publisher = Publisher(self._expected)
        self._past = template.past
        self.outcome = Outcome(plan)

    async def run(self) -> Outcome:
        """Damage, look, put back, look again, and once more with another broker."""
        before = len(self._expected.messages)
        upkeep = BUSY_UPKEEP if self._plan.busy_upkeep else NO_UPKEEP
        if not self._plan.under_load:
            await self._strike()
        try:
            async with self._broker(upkeep) as at:
                if self._plan.under_load:
                    await self._strike_under_load(at)
                if self.outcome.damage is None:
                    return self.outcome
                await self._look(at)
                self._put_back()
                await self._until_as_before(at, "at the same broker")
        except StartFailed as error:
            self._complain(f"no start: {error}")
            self._put_back()
        if self.outcome.damage is not None:
            async with self._broker(NO_UPKEEP) as at:
                await self._until_as_before(at, "at the next broker")
        self.outcome.acknowledged = len(self._expected.messages) - before
        return self.outcome

    @contextlib.asynccontextmanager
    async def _broker(self, settings: dict[str, float]) -> AsyncIterator[Address]:
        started = False
        try:
            async with broker_on(self._world.open, store=self._world.address.url, **settings) as broker:
                started = True
                yield Address(broker.url, broker.client, self._world.address)
        except Exception as error:
            if started:
                raise
            raise StartFailed(repr(error)) from error

    # -- damage ----------------------------------------------------------------------------------------------

    async def _strike(self) -> None:
        found = (await asyncio.to_thread(by_kind, self._objects, TOPIC)).get(self._plan.kind, [])
        candidates = [key for key in found if self._has_messages(key)]
        if self._plan.manner == "older":
            candidates = [key for key in candidates if self._past.older(key, self._objects.read(key) or b"")]
        if not candidates:
            return
        newest = await asyncio.to_thread(self._newest_of_open)
        damage = None
        # Upkeep may be faster: then there is another one.
        for key in self._chance.sample(candidates, min(STRIKES, len(candidates))):
            damage = await asyncio.to_thread(strike, self._objects, key, self._plan.manner, self._chance, self._past)
            if damage is not None:
                break
        self.outcome.damage = damage
        unseen = not self._plan.under_load and self._plan.manner == "delete"
        self.outcome.invisible = unseen and key in newest

    def _has_messages(self, key: str) -> bool:
        """Whether an object is of a segment that still has messages; those of others are nobody's loss."""
        segment = segment_of(key)
        return segment is None or bool(self._expected.of(segment))

    def _newest_of_open(self) -> set[str]:
        """The newest file of each open segment."""
        record = self._objects.read(keys.topic(TOPIC))
        if record is None:
            return set()
        newest: dict[int, tuple[int, str]] = {}
        for key in self._objects.names():
            segment, name = segment_of(key), FileName.parse(key)
            if segment is not None and name is not None:
                newest[segment] = max(newest.get(segment, (-1, "")), (name.base, key))
        opened = {segment.id for segment in TopicState.from_json(record).open_segments}
        return {key for segment, (_, key) in newest.items() if segment in opened}

    async def _strike_under_load(self, at: Address) -> None:
        """Damage an object somewhere among the messages of a publisher."""
        opened = await route(at.client)
        wanted = choose_keys(opened, self._chance, LOAD_MESSAGES)
        moment = self._chance.randrange(LOAD_MESSAGES)
        for number, key in enumerate(wanted):
            if number == moment:
                await self._strike()
            answer = await self._publisher.publish(at.client, key)
            if answer is not None and answer.status_code != 200:
                self._check_error("publish", answer.text)

    def _put_back(self) -> None:
        damage = self.outcome.damage
        if damage is None or put_back(self._objects, damage):
            return
        now = self._objects.read(damage.key)
        # Where nobody can know that the newest file is gone, its name is free.
        if damage.kind in NAMES_TAKEN and not self.outcome.invisible and now not in (None, damage.before):
            self._complain("taken: another object was stored under its name")

    # -- looking ---------------------------------------------------------------------------------------------

    async def _look(self, at: Address) -> None:
        """Read in every way while the object is damaged, publish everywhere, and read what was published."""
        for name in (*EVERY_TIME, self._plan.slow_reader):
            self._judge(await self._reading(name, READERS[name], at))
        for name, read_all in self._more_readers.items():
            self._judge(await self._reading(name, read_all, at))
        await self._read_history(at)
        await self._read_payloads(at)
        await self._publish_everywhere(at)
        await self._read_each_segment(at)

    async def _reading(self, name: str, read_all: Read, at: Address) -> Reading:
        """One that is right, or that names the object, as soon as there is one."""
        for attempt in range(TRIES):
            reading = await read_by(name, read_all, at, self._expected)
            if reading.error is None or self._names(reading.error):
                break
            if attempt < TRIES - 1:
                await asyncio.sleep(RETRY_SECONDS)
        return reading

    def _judge(self, reading: Reading) -> None:
        self.outcome.complaints += reading.complaints(self._expected, may_miss=self._may_miss)
        if reading.error is not None:
            self._check_error(reading.name, reading.error)

    def _may_miss(self, place: Place) -> bool:
        """Whether nobody can know of a message that is gone."""
        damage = self.outcome.damage
        if not self.outcome.invisible or damage is None:
            return False
        name = FileName.parse(damage.key)
        return name is not None and place[0] == segment_of(damage.key) and place[1] >= name.base

    async def _read_history(self, at: Address) -> None:
        lives, error = await read_history(at)
        if error is not None:
            self._check_error("history", error)
            return
        missing = self._expected.lives - lives
        if missing and (self._plan.kind, self._plan.manner) == ("history", "delete"):
            # Ids may be missing for good reasons, so a record that is gone leaves no trace. No message depends on it.
            self.outcome.invisible = True
        elif missing:
            self._complain(f"missing: the history does not tell of the segments {sorted(missing)}")

    async def _read_payloads(self, at: Address) -> None:
        async for place, found, error in read_payloads(at, self._expected):
            if self._may_miss(place):
                continue
            if error is not None:
                self._check_error("payload", error)
            elif found != (data := self._expected.payloads[place][1]):
                self._complain(f"changed: the payload of {place} was given as {found!r}, not as {data!r}")

    async def _publish_everywhere(self, at: Address) -> None:
        try:
            opened = await route(at.client)
        except httpx.HTTPStatusError as error:
            self._check_error("route", error.response.text)
            return
        for segment in opened:
            key = key_in(tuple(segment["range"]))
            answer = None
            for _ in range(TRIES):
                answer = await self._publisher.publish(at.client, key)
                if answer is not None and (answer.status_code == 200 or self._names(answer.text)):
                    break
                await asyncio.sleep(RETRY_SECONDS)
            if answer is not None and answer.status_code == 200:
                continue
            text = "no answer" if answer is None else answer.text
            self._check_error("publish", text)
            if self._names(text) and not self._may_stop_publishing(segment["segment"]):
                self._complain(f"not published: segment {segment['segment']} takes nothing: {text}")

    def _may_stop_publishing(self, segment: int) -> bool:
        """Whether the damage is to the end of that very segment, or to the record of all."""
        damage = self.outcome.damage
        assert damage is not None
        return damage.kind in WHOLE_TOPIC or segment == segment_of(damage.key)

    async def _read_each_segment(self, at: Address) -> None:
        """Every other segment whole; the damaged one up to the damage, and on behind it."""
        damage = self.outcome.damage
        assert damage is not None
        for segment in self._expected.segments:
            start = min(self._expected.of(segment))
            while True:
                reading, problem = await read_segment(at, segment, start)
                if reading.error is None or self._names(reading.error):
                    self._judge_stretch(reading, start, problem)
                else:
                    self._check_error(reading.name, reading.error)
                if reading.error is None:
                    break
                if damage.kind not in WHOLE_TOPIC and segment != segment_of(damage.key):
                    self._complain(f"not read: segment {segment} is not damaged: {reading.error}")
                if (behind := problem.get("next_offset")) is None or behind <= start:
                    break
                start = behind

    def _judge_stretch(self, reading: Reading, start: int, problem: dict[str, object]) -> None:
        """Between its start and the gap that it was told of, it must have everything."""
        stop = problem.get("offset")
        stretch = Expected(
            {
                place: value
                for place, value in self._expected.messages.items()
                if place[1] >= start and (not isinstance(stop, int) or place[1] < stop)
            },
            set(self._expected.maybe),
        )
        whole = Reading(reading.name, reading.found, None if isinstance(stop, int) else reading.error, reading.segment)
        self.outcome.complaints += whole.complaints(stretch, may_miss=self._may_miss)
        self.outcome.told += reading.error is not None

    async def _until_as_before(self, at: Address, where: str) -> None:
        """Soon everything is read in every way without an error, and every segment takes messages."""
        deadline = time.monotonic() + HEAL_SECONDS
        for name in ("browse", "files", self._chance.choice(("arrow", "subscribe", "python client"))):
            while True:
                reading = await read_by(name, READERS[name], at, self._expected)
                complaints = reading.complaints(self._expected, may_miss=self._may_miss)
                if not complaints and reading.error is None:
                    break
                if time.monotonic() > deadline:
                    self._complain(f"not healed {where}: {reading.name}: {reading.error}: {complaints}")
                    return
                await asyncio.sleep(RETRY_SECONDS)
        async for place, found, error in read_payloads(at, self._expected):
            if found != self._expected.payloads[place][1] and not self._may_miss(place):
                self._complain(f"not healed {where}: the payload of {place}: {error or found!r}")
        await self._publish_as_before(at, where, deadline)

    async def _publish_as_before(self, at: Address, where: str, deadline: float) -> None:
        for segment in await route(at.client):
            while True:
                answer = await self._publisher.publish(at.client, key_in(tuple(segment["range"])))
                if answer is not None and answer.status_code == 200:
                    break
                if time.monotonic() > deadline:
                    text = "no answer" if answer is None else answer.text
                    self._complain(f"not healed {where}: segment {segment['segment']} takes nothing: {text}")
                    return
                await asyncio.sleep(RETRY_SECONDS)

    # -- words -----------------------------------------------------------------------------------------------

    def _names(self, error: str) -> bool:
        return self.outcome.damage is not None and self.outcome.damage.key in error

    def _check_error(self, who: str, error: str) -> None:
        if self._names(error):
            self.outcome.told += 1
            if self.outcome.damage is not None and self.outcome.damage.kind == "snapshot":
                self._complain(f"not rebuilt: {who} got {error}")
        else:
            self._complain(f"unnamed: {who} got an error that does not name the object: {error}")

    def _complain(self, text: str) -> None:
        self.outcome.complaints.append(text[:SHOWN_CHARS])


class StartFailed(Exception):
    """The broker did not start."""


def segment_of(key: str) -> int | None:
    """The segment that an object belongs to; None for those of the whole topic."""
    match = _SEGMENT.search(f"/{key}")
    return int(match[1] or match[2]) if match else None


def commit() -> str:
    """The commit of this checkout, with a + where something in it has changed since."""
    asked = subprocess.run(["git", "describe", "--always", "--dirty=+"], capture_output=True, text=True, check=True)
    return asked.stdout.strip()


async def run_trials(
    store: str,
    seed: int,
    numbers: Sequence[int],
    report: Callable[[Outcome], None] = lambda outcome: None,
    *,
    more_readers: Mapping[str, Read] = MappingProxyType({}),
) -> list[Outcome]:
    """Run those trials one after the other, with more readers than the usual ones."""
    outcomes: list[Outcome] = []
    async with worlds(store) as made:
        template = await made.template()
        for number in numbers:
            plan = Plan.draw(seed, number)
            async with made.copy() as world:
                trial = Trial(plan, world, template, more_readers)
                try:
                    outcome = await trial.run()
                except Exception as error:
                    outcome = trial.outcome
                    outcome.complaints.append(f"stopped: {error!r}"[:SHOWN_CHARS])
            outcomes.append(outcome)
            report(outcome)
    return outcomes


def summary(outcomes: Sequence[Outcome]) -> str:
    """The outcomes as a table in Markdown, by kind of object and manner of damage."""
    return table([_entry(each, "", 0, "", 0.0) for each in outcomes])


def table(entries: Sequence[Entry]) -> str:
    """As `summary`, of entries of a journal. Trials that found nothing to damage are left out."""
    lines = [
        "| object | damage | trials | acknowledged | told | cannot be seen | wrong |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    struck = [each for each in entries if each.damage is not None]
    for kind in KINDS:
        for manner in manners_of(kind):
            those = [each for each in struck if (each.kind, each.manner) == (kind, manner)]
            if those:
                lines.append(_line(f"{kind} | {manner}", those))
    lines.append(_line("**all** | ", struck))
    return "\n".join(lines)


def _line(name: str, those: Sequence[Entry]) -> str:
    return (
        f"| {name} | {len(those)} | {sum(each.acknowledged for each in those)} | {sum(each.told for each in those)} "
        f"| {sum(each.invisible for each in those)} | {sum(bool(each.complaints) for each in those)} |"
    )


def main(arguments: Sequence[str]) -> int:
    """Run the trials. Returns 0 if nothing was wrong in any."""
    options = _options().parse_args(arguments)
    seed = options.seed if options.seed is not None else secrets.randbelow(2**32)
    print(f"seed {seed}", flush=True)
    if options.store == "both":
        return _run_both(options, seed)
    logging.disable(logging.CRITICAL)
    journal, made_at = Journal(options.journal), commit()
    numbers = [each for each in _numbers(options) if each not in journal.done(options.store, seed)]
    began = time.monotonic()

    def report(outcome: Outcome) -> None:
        nonlocal began
        now = time.monotonic()
        journal.add(_entry(outcome, options.store, seed, made_at, now - began))
        began = now
        if outcome.complaints:
            print(f"{outcome.plan}; {outcome.damage}", flush=True)
            for complaint in outcome.complaints[:5]:
                print(f"    {complaint}", flush=True)

    with contextlib.ExitStack() as stack:
        readers = spark_readers(stack.enter_context(spark_session())) if options.spark else {}
        asyncio.run(run_trials(options.store, seed, numbers, report, more_readers=readers))
    return _verdict(journal, {options.store: _numbers(options)}, seed)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.faults.object_trials", description=__doc__)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the number of the first trial")
    parser.add_argument("--seed", type=int, help="draw the trials of a former run")
    parser.add_argument(
        "--store",
        choices=["directory", "s3", "both"],
        default="directory",
        help="both: the first half of the trials on a directory and the other on S3, at once",
    )
    parser.add_argument("--journal", type=Path, help="a file for what came of each; a run that has it goes on there")
    parser.add_argument("--spark", action="store_true", help="read with Spark as well, which takes seconds each time")
    return parser


def _numbers(options: argparse.Namespace) -> range:
    return range(options.first, options.first + options.trials)


def _run_both(options: argparse.Namespace, seed: int) -> int:
    """Half of the trials on each store, in a process each, and one verdict on all."""
    half = options.trials // 2
    spans = {
        "directory": range(options.first, options.first + options.trials - half),
        "s3": range(options.first + options.trials - half, options.first + options.trials),
    }
    with tempfile.TemporaryDirectory() as folder:
        base = options.journal or Path(folder) / "trials.jsonl"
        paths = {store: base.with_name(f"{base.name}.{store}") for store in spans}
        processes = [
            subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.cluster.faults.object_trials", "--store", store),
                    *("--seed", str(seed), "--first", str(span.start), "--trials", str(len(span))),
                    *("--journal", str(paths[store]), *(["--spark"] if options.spark else [])),
                ],
                stdout=subprocess.DEVNULL,
            )
            for store, span in spans.items()
        ]
        try:
            failed = [process.wait() for process in processes]
        finally:
            for process in processes:
                process.terminate()
                process.wait()
        whole = Journal(None)
        for path in paths.values():
            whole.entries += Journal(path).entries
    return max(_verdict(whole, spans, seed), *(code if code > 1 else 0 for code in failed))


def _entry(outcome: Outcome, store: str, seed: int, made_at: str, seconds: float) -> Entry:
    plan, damage = outcome.plan, outcome.damage
    return Entry(
        store,
        seed,
        plan.number,
        made_at,
        str(plan),
        plan.kind,
        plan.manner,
        None if damage is None else str(damage),
        outcome.acknowledged,
        outcome.told > 0,
        outcome.invisible,
        tuple(outcome.complaints),
        round(seconds, 2),
    )


def _verdict(journal: Journal, spans: Mapping[str, Sequence[int]], seed: int) -> int:
    """Print a table for each store, and what was wrong. Returns 0 if all trials ran and nothing was."""
    missing = 0
    entries: list[Entry] = []
    for store, numbers in spans.items():
        those = [e for e in journal.entries if (e.store, e.seed) == (store, seed) and e.number in numbers]
        missing += len(numbers) - len({each.number for each in those})
        commits = ", ".join(sorted({each.commit for each in those}))
        seconds = sum(each.seconds for each in those)
        print(f"\nTrials on single objects, store: {store}, seed {seed}, commit {commits}.\n\n{table(those)}\n")
        print(
            f"{sum(e.damage is not None for e in those)} of {len(those)} trials struck in {seconds:.0f} s", flush=True
        )
        entries += those
    wrong = [each for each in entries if each.complaints]
    for each in wrong:
        print(f"{each.store} {each.plan}; {each.damage}\n    {each.complaints[0]}")
    words = Counter(complaint.split(":")[0] for each in wrong for complaint in each.complaints)
    print(f"{len(wrong)} wrong: {dict(words)}" if wrong else "clean" if not missing else "")
    if missing:
        print(f"{missing} trials did not run: the same command goes on with them")
    return 1 if wrong or missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
