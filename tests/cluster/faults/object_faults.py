"""Damage to single objects, and steps of clocks, as faults of a cluster under a workload.

An object is put back after a while. Until then readers may be told of it, by its name, and nothing may be wrong.
"""

import asyncio
import random
from functools import partial

from filer import keys
from filer.keys import FileName
from filer.topic.topic_state import TopicState
from tests.cluster.checker.consumers import Consumer
from tests.cluster.faults.faults import FaultKind
from tests.cluster.faults.scene import Scene
from tests.support.cluster.stepped_cluster import SteppedCluster
from tests.support.store.object_faults import (
    KINDS,
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

DAMAGED_SECONDS = (0.5, 3.0)
STEPPED_SECONDS = (1.0, 4.0)
STEPS_SECONDS = (-7200.0, -60.0, 60.0, 7200.0)
STRIKES = 10


class NothingToDamage(AssertionError):
    """There is no such object, or somebody else was always faster."""


def some_key(objects: Objects, topic: str, kind: Kind, chance: random.Random) -> str | None:
    """An object of that kind, of a topic or of the cluster; told by names and topic.json alone, without reading all."""
    if kind in ("cluster.json", "settings.json"):
        return keys.CLUSTER if kind == "cluster.json" else keys.CLUSTER_SETTINGS
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
    """Damage some object of that kind. Raises `NothingToDamage`."""
    for _ in range(STRIKES):
        past.remember()
        key = some_key(objects, topic, kind, chance)
        damage = None if key is None else strike(objects, key, manner, chance, past)
        if damage is not None:
            return damage
    raise NothingToDamage(f"{topic} has no {kind} to {manner}")


async def damage_object(kind: Kind, manner: Manner, scene: Scene) -> None:
    """Damage an object for some seconds, and put it back."""
    objects, topic = scene.cluster.store.objects(), scene.chance.choice(scene.topics)
    damage = await asyncio.to_thread(damage_some, objects, topic, kind, manner, scene.chance, past_of(scene))
    fault = scene.load.history.faults[-1]
    fault.key, fault.detail = damage.key, str(damage)
    try:
        # Readers of the tail do not come past it. This one reads all there is, at one broker after the other.
        number = len(scene.load.history.faults)
        reader = Consumer(f"{topic}-reader-{number}", topic, "browse", pause_seconds=0.05)
        await scene.load.read_meanwhile(reader, scene.chance.uniform(*DAMAGED_SECONDS))
    finally:
        # False: brokers have written a newer one. What that is worth the verdict will say.
        await asyncio.to_thread(put_back, objects, damage)


_pasts: dict[int, Past] = {}


def past_of(scene: Scene) -> Past:
    """The older versions of a cluster's objects, as far as faults have seen them."""
    return _pasts.setdefault(id(scene.cluster), Past(scene.cluster.store.objects()))


async def step_clock(scene: Scene) -> None:
    """Step the wall clock of one broker, by up to two hours, for some seconds."""
    assert isinstance(scene.cluster, SteppedCluster), "only a SteppedCluster has clocks that can be stepped"
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
    for manner in manners_of(kind)
)
CLOCK_FAULTS = (FaultKind("step-clock", step_clock),)
