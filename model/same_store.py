"""Brokers that start on the store of a cluster, or on a copy of it (docs/design.md §8).

Each broker looks which brokers are announced, proves that it has their store, joins as one that starts, proves it again
to those that came before it, is announced as one that has started, and serves. A broker that is asked reads the object
that the other has just written: it finds it if they have the same store. Brokers answer from some moment after they
have joined. Any broker may be killed at any step, and stays announced as it was until its session ends.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from model.explorer import explore_all


class Rules(NamedTuple):
    """The safeguards. Each is needed: without any one of them a promise is broken."""

    proves_before_joining: bool = True
    proves_to_elders: bool = True
    """Proves it after it has joined too: the others may have died since, and brokers on a copy come."""
    waits_for_the_silent: bool = True
    waits_for_starters: bool = True
    """Waits for an earlier broker that has proven nothing yet, whichever others answer."""


class World(NamedTuple):
    """`announced` has the brokers in the order in which they joined; those of `starting` are announced as such.

    Of the live ones, `serving` acknowledge, and `listening` answer other brokers.
    """

    announced: tuple[int, ...] = ()
    starting: frozenset[int] = frozenset()
    serving: frozenset[int] = frozenset()
    listening: frozenset[int] = frozenset()
    was_blind: bool = False
    """Whether a broker was on its way to be announced although one of another store served."""


class Broker(NamedTuple):
    """One process. `phase` is looking, joining, joined, started, serving, refused, dead or gone."""

    number: int
    rules: Rules
    phase: str = "looking"


STORES = {0: "the store", 1: "its copy", 2: "the store", 3: "its copy"}
"""The store of each broker, by its number."""


def steps_of(broker: Broker, world: World) -> Iterator[tuple[str, World, Broker]]:
    """Yield what a broker may do next."""
    me, name = broker.number, f"broker {broker.number} on {STORES[broker.number]}"
    if broker.phase in ("refused", "gone"):
        return
    if broker.phase == "dead":
        yield f"the session of {name} ends", _without(world, me), broker._replace(phase="gone")
        return
    ended = world._replace(serving=world.serving - {me}, listening=world.listening - {me})
    yield f"{name} is killed", ended, broker._replace(phase="dead")
    if broker.phase == "looking":
        yield from _proves(name, broker, world, world.announced if broker.rules.proves_before_joining else ())
    elif broker.phase == "joining":
        joined = world._replace(announced=(*world.announced, me), starting=world.starting | {me})
        yield f"{name} joins", joined, broker._replace(phase="joined")
    elif broker.phase == "joined":
        elders = world.announced[: world.announced.index(me)] if broker.rules.proves_to_elders else ()
        yield from _proves(name, broker, world, elders)
        if me not in world.listening:
            yield f"{name} listens", world._replace(listening=world.listening | {me}), broker
    elif broker.phase == "started":
        serves = world._replace(serving=world.serving | {me}, listening=world.listening | {me})
        yield f"{name} serves", serves, broker._replace(phase="serving")


def _proves(name: str, broker: Broker, world: World, elders: Sequence[int]) -> Iterator[tuple[str, World, Broker]]:
    """The eldest that answers decides. Those that do not answer are waited for while they are announced."""
    found = next((each for each in elders if each in world.listening), None)
    waits = broker.rules.waits_for_starters and broker.phase == "joined" and not world.starting.isdisjoint(elders)
    if not elders or (found is None and not broker.rules.waits_for_the_silent):
        yield f"{name} asks no broker", *_goes_on(broker, world)
    elif found is not None and STORES[found] != STORES[broker.number]:
        yield f"{name} is refused by broker {found}", _without(world, broker.number), broker._replace(phase="refused")
    elif found is not None and not waits:
        yield f"{name} is proven by broker {found}", *_goes_on(broker, world)


def _goes_on(broker: Broker, world: World) -> tuple[World, Broker]:
    me = broker.number
    if broker.phase == "joined":
        return world._replace(starting=world.starting - {me}), broker._replace(phase="started")
    is_blind = any(STORES[each] != STORES[me] for each in world.serving)
    return world._replace(was_blind=world.was_blind or is_blind), broker._replace(phase="joining")


def _without(world: World, number: int) -> World:
    left = tuple(each for each in world.announced if each != number)
    others = (each - {number} for each in (world.starting, world.serving, world.listening))
    return World(left, *others, world.was_blind)


def complaint(world: World, brokers: Sequence[Broker]) -> str | None:
    """Return the promise that is broken."""
    if len({STORES[each] for each in world.serving}) > 1:
        return "brokers serve two stores as one cluster"
    return "announced on a copy while brokers serve" if world.was_blind else None


def explore(rules: Rules) -> int:
    """Explore every order of events of four brokers; returns the number of states. Raises `Violation`."""
    brokers = [Broker(number, rules) for number in STORES]
    return explore_all(World(), brokers, steps_of=steps_of, complaint=complaint)[0]
