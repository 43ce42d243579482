"""Damage to single objects, and steps of clocks, as faults of a cluster under a workload.

An object is put back after a while. Until then readers may be told of it, by its name, and nothing may be wrong. So
that somebody meets the damage, readers go for it at every broker, and sometimes an owner is killed meanwhile.
"""

import asyncio
import contextlib
import random
import re
from functools import partial

import httpx

from filer import keys
from filer.keys import FileName
from filer.topic.topic_state import TopicState
from tests.cluster.checker.consumers import Consumer
from tests.cluster.checker.segment_reader import SegmentReader
from tests.cluster.faults.faults import FaultKind, NothingHappened
from tests.cluster.faults.scene import Scene
from tests.support.cluster.steered_cluster import SteeredCluster
from tests.support.store.object_faults import (
    CHANGING,
    KINDS,
    OF_THE_CLUSTER,
    Damage,
    Kind,
    Manner,
    Objects,
    Past,
    kind_by_name,
    manners_of,
    put_back,
    strike,
)

DAMAGED_SECONDS = (0.5, 2.0)
STEPPED_SECONDS = (1.0, 4.0)
STEPS_SECONDS = (-7200.0, -60.0, 60.0, 7200.0)
STRIKES = 10
KILL_CHANCE = 0.12
OF_CLUSTER: tuple[Kind, ...] = ("cluster.json", "settings.json")
# Only a broker that starts, or takes a segment over, reads these.
READ_AT_START: tuple[Kind, ...] = (*OF_CLUSTER, "snapshot")
KILL_CHANCE_FOR_THESE = 0.35
# Without retention nothing leaves topic.json, so there is no history. No producer publishes by reference. The trials
# damage both.
NOT_THERE: tuple[Kind, ...] = ("history", "payload")
_SEGMENT_FOLDER = re.compile(r"/segments/segment=(\d+)/")


def some_key(objects: Objects, topic: str, kind: Kind, chance: random.Random) -> str | None:
    """An object of that kind, of a topic or of the cluster; told by names and topic.json alone, without reading all."""
    if kind in OF_CLUSTER:
        return chance.choice([key for key in OF_THE_CLUSTER if kind_by_name(key) == kind])
    names = objects.names(keys.topic_folder(topic))
    seals = _seals(objects.read(keys.topic(topic)), topic)
    if kind == "seal":
        wanted = sorted(seals.intersection(names))
    else:
        wanted = [name for name in names if kind_by_name(name) == kind and name not in seals]
    return chance.choice(wanted) if wanted else None


def _seals(record: bytes | None, topic: str) -> set[str]:
    if record is None:
        return set()
    sealed = [each for each in TopicState.from_json(record).segments if each.seal_offset is not None]
    return {keys.segment_file(topic, each.id, FileName(each.seal_offset or 0)) for each in sealed}


def damage_some(objects: Objects, topic: str, kind: Kind, manner: Manner, chance: random.Random, past: Past) -> Damage:
    """Damage some object of that kind. Raises `NothingHappened`."""
    for _ in range(STRIKES):
        if kind in CHANGING:
            past.remember()
        key = some_key(objects, topic, kind, chance)
        if key is None:
            break
        damage = strike(objects, key, manner, chance, past)
        if damage is not None:
            return damage
    raise NothingHappened(f"{topic} has no {kind} to {manner}")


async def damage_object(kind: Kind, manner: Manner, scene: Scene) -> None:
    """Damage an object for some seconds, and put it back."""
    objects, topic = scene.objects, scene.chance.choice(scene.topics)
    victim, segment = await _victim(kind, topic, scene), scene.chance.choice(await scene.cluster.segments(topic))
    damage = await asyncio.to_thread(damage_some, objects, topic, kind, manner, scene.chance, scene.pasts[topic])
    fault = scene.load.history.faults[-1]
    fault.key, fault.detail = damage.key, str(damage)
    logged = scene.cluster.logged(damage.key)
    try:
        await _meet(scene, topic, damage, victim, segment)
    finally:
        fault.logged = scene.cluster.logged(damage.key) - logged
        # False: brokers have written a newer one. What that is worth the verdict will say.
        await asyncio.to_thread(put_back, objects, damage)


async def _victim(kind: Kind, topic: str, scene: Scene) -> str | None:
    """An owner to be killed while the object is damaged, if any."""
    if scene.chance.random() >= (KILL_CHANCE_FOR_THESE if kind in READ_AT_START else KILL_CHANCE):
        return None
    return scene.chance.choice(await scene.cluster.owners(topic))


async def _meet(scene: Scene, topic: str, damage: Damage, victim: str | None, segment: int) -> None:
    """Let readers, a change of the topic, and sometimes a broker that takes over, come across the damage."""
    seconds, number = scene.chance.uniform(*DAMAGED_SECONDS), len(scene.load.history.faults)
    # Readers of the tail do not come past it. This one reads all there is, at one broker after the other.
    everything = Consumer(f"{topic}-reader-{number}", topic, "browse", pause_seconds=0.05)
    meeting = [scene.load.read_meanwhile(everything, seconds)]
    place = place_of(damage.key)
    if place is not None:
        there = SegmentReader(f"{topic}-at-damage-{number}", topic, *place, scene.load.now)
        meeting.append(scene.load.read_there_meanwhile(there, seconds))
    if damage.kind == "topic.json":
        meeting.append(_try_to_split(scene, topic, segment, seconds))
    if victim is not None:
        meeting.append(_kill_for_a_while(scene, victim))
    await asyncio.gather(*meeting)


async def _try_to_split(scene: Scene, topic: str, segment: int, seconds: float) -> None:
    """Whether it is done, refused or late: what becomes of the topic the verdict will say."""
    with contextlib.suppress(httpx.HTTPError, TimeoutError):
        async with asyncio.timeout(seconds):
            await scene.cluster.split(topic, segment, 2)


async def _kill_for_a_while(scene: Scene, broker: str) -> None:
    """Its segments go to others meanwhile, which have to find out where they end."""
    scene.load.history.faults[-1].detail += f", and {broker} was killed"
    await scene.cluster.kill(broker)
    await scene.pause(1.0, 1.5)
    await scene.cluster.start(broker)


def place_of(key: str) -> tuple[int, int] | None:
    """The segment of a segment file, and the first offset that it has; None for other objects."""
    name, folder = FileName.parse(key), _SEGMENT_FOLDER.search(key)
    return None if name is None or folder is None else (int(folder[1]), name.base)


async def step_clock(scene: Scene) -> None:
    """Step the wall clock of one broker, by up to two hours, for some seconds."""
    assert isinstance(scene.cluster, SteeredCluster), "only a SteeredCluster has clocks that can be stepped"
    broker, seconds = scene.some_broker(), scene.chance.choice(STEPS_SECONDS)
    scene.load.history.faults[-1].detail = f"{broker} by {seconds:+g} s"
    scene.cluster.step_clock(broker, seconds)
    try:
        await asyncio.sleep(scene.chance.uniform(*STEPPED_SECONDS))
    finally:
        scene.cluster.step_clock(broker, 0.0)


OBJECT_FAULTS = tuple(
    FaultKind(f"{manner}-{kind.replace(' ', '-')}", partial(damage_object, kind, manner))
    for kind in KINDS
    if kind not in NOT_THERE
    for manner in manners_of(kind)
)
CLOCK_FAULTS = (FaultKind("step-clock", step_clock),)
