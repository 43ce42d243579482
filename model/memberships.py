"""A stream group's members, assignments and commits (docs/design.md §12), as a small model.

What a group must not forget are records in the log of one segment of `__groups`. Whoever owns that segment is the
group's coordinator. It may be killed, or be taken for dead while it lives. When it was heard of a member last is in its
memory alone. The topic has two segments: the first, and its successor. Members send heartbeats, deliver messages, and
commit positions. They are killed, stand still, and start again under the same name. Commits arrive late, out of order,
twice, and at any coordinator that lives.

A record gives a segment to one start of a member, under an *epoch*: the number of times that the segment was given to
anybody. A commit names the epoch. All interleavings are explored. After every step these are checked:

- a commit counts only if it is in the log when it is answered, and if nobody else has the segment by then;
- no two members hold a segment under the same epoch;
- the position of a segment never goes back;
- a commit that was accepted is accepted again when it is repeated;
- a segment is given to a member only when all of its predecessors is committed;
- no segment is with two members whose sessions both run, but for sessions that a coordinator keeps up whose log was
  sealed, and for two processes that call themselves by the same name.

`Rules` are the safeguards. Without any one of them the model must find a broken promise.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple

from model.explorer import explore_all

SESSION = 1
SEGMENTS = 2


@dataclass(frozen=True)
class Rules:
    """The safeguards. A test takes each one away.

    `fences`: a record lands only while the log is not sealed. `tells_when_durable`: commits and assignments are told
    once their records have landed. `compares_epochs`: only the last epoch of a segment commits. `remembers_commits`:
    the log tells how far each epoch of a segment has committed, and not the position alone. `lets_go_first`: a segment
    moves once its holder has said that it let go, or its session has ended.
    `waits_out_sessions`: a coordinator that takes over gives each member a session from then on. `drains_first`: a
    successor waits for its predecessors. `renews_epochs`: a member that comes back gets its segments under new epochs.
    `decides_once`: from the moment when a segment is to be given away, no heartbeat leaves it with its holder.
    """

    fences: bool = True
    tells_when_durable: bool = True
    compares_epochs: bool = True
    remembers_commits: bool = True
    lets_go_first: bool = True
    waits_out_sessions: bool = True
    drains_first: bool = True
    renews_epochs: bool = True
    decides_once: bool = True


@dataclass(frozen=True)
class Scene:
    """How many messages the first segment has, and its successor if there is one; and until when the clock runs.

    `events`: how often a coordinator is killed or taken for dead. `restarts`: how often a member starts again. `moves`:
    how often a coordinator wants a segment elsewhere.
    """

    lengths: tuple[int, ...] = (1,)
    members: int = 2
    events: int = 1
    restarts: int = 0
    moves: int = 1
    ticks: int = 1


class Record(NamedTuple):
    """A message of `__groups`: `what` is given or commit. `holder` is a member's name and the number of its start."""

    what: str
    segment: int
    epoch: int
    position: int = 0
    holder: tuple[int, int] = (-1, -1)


class Commit(NamedTuple):
    """A request that is on its way for ever: it may arrive late, and twice."""

    segment: int
    epoch: int
    position: int
    holder: tuple[int, int]


class Coordinator(NamedTuple):
    """Who owns the log in one epoch of it, and what it knows.

    `heard`: by member, when it was heard last, the number of its start then, and what it may hold since: what it said,
    and what it was told. `moving`: the segments that their holders are to let go.
    """

    number: int
    since: int = 0
    lives: bool = True
    view: tuple[Record, ...] = ()
    queue: tuple[Record, ...] = ()
    landed: bool | None = None
    heard: tuple[tuple[int, int, frozenset[int]] | None, ...] = ()
    moving: frozenset[int] = frozenset()


class Hold(NamedTuple):
    """A segment in a member's hands: the epoch, and how far it has delivered."""

    segment: int
    epoch: int
    position: int


class Member(NamedTuple):
    """A start of a member. `renewed`: when its session was last renewed, and `excused`: by a sealed coordinator."""

    name: int
    start: int = 0
    lives: bool = True
    holds: tuple[Hold, ...] = ()
    renewed: int = -1
    excused: bool = False


class World(NamedTuple):
    """The log, its coordinators, all starts of members, and the commits that were sent and that were accepted."""

    log: tuple[Record, ...] = ()
    coordinators: tuple[Coordinator, ...] = ()
    members: tuple[Member, ...] = ()
    now: int = 0
    sent: frozenset[Commit] = frozenset()
    accepted: frozenset[Commit] = frozenset()
    broken: str = ""


class Members(NamedTuple):
    """What members do, and their network."""


class Work(NamedTuple):
    """What coordinators do by themselves, and the store. They may want so many more segments elsewhere."""

    moves: int


class Fate(NamedTuple):
    """What befalls them, so many times more; and time."""

    events: int
    restarts: int


Actor = Members | Work | Fate
Step = tuple[str, World, Actor]


class Fold(NamedTuple):
    """What records add up to: by segment, its epoch and holder, its position; and how far each epoch has committed."""

    epochs: tuple[int, ...]
    holders: tuple[tuple[int, int], ...]
    positions: tuple[int, ...]
    committed: dict[tuple[int, int], int]


@lru_cache(maxsize=100_000)
def fold(records: tuple[Record, ...]) -> Fold:
    """Add up records, in the order of the log."""
    epochs, positions = [0 for _ in range(SEGMENTS)], [0 for _ in range(SEGMENTS)]
    holders = [(-1, -1) for _ in range(SEGMENTS)]
    committed = dict[tuple[int, int], int]()
    for record in records:
        segment = record.segment
        if record.what == "given":
            epochs[segment], holders[segment] = record.epoch, record.holder
            continue
        positions[segment] = record.position
        key = (segment, record.epoch)
        committed[key] = max(committed.get(key, 0), record.position)
    return Fold(tuple(epochs), tuple(holders), tuple(positions), committed)


def steps_of(actor: Actor, world: World, rules: Rules, scene: Scene) -> Iterator[Step]:
    """Every step that the actor may take now."""
    living = [coordinator for coordinator in world.coordinators if coordinator.lives]
    match actor:
        case Members():
            for coordinator in living:
                for what, after in _ask(coordinator, world, rules, scene):
                    yield f"{what} at coordinator {coordinator.number}", after, actor
            for number, member in enumerate(world.members):
                if member.lives:
                    for what, after in _deliver(member, number, world, scene):
                        yield what, after, actor
        case Work():
            for coordinator in living:
                for what, after, moves in _work(coordinator, world, rules, scene, actor.moves):
                    yield f"coordinator {coordinator.number} {what}", after, Work(moves)
        case Fate():
            yield from _befall(actor, living, world, scene)


def _with(world: World, coordinator: Coordinator) -> World:
    all_of_them = list(world.coordinators)
    all_of_them[coordinator.number] = coordinator
    return world._replace(coordinators=tuple(all_of_them))


def _with_member(world: World, number: int, member: Member) -> World:
    return world._replace(members=(*world.members[:number], member, *world.members[number + 1 :]))


def _is_sealed(coordinator: Coordinator, world: World) -> bool:
    return coordinator.number < len(world.coordinators) - 1


def _known(coordinator: Coordinator, rules: Rules) -> Fold:
    records = coordinator.view if rules.tells_when_durable else (*coordinator.view, *coordinator.queue)
    return fold(records)


# -- members -----------------------------------------------------------------------------------------------


def _ask(coordinator: Coordinator, world: World, rules: Rules, scene: Scene) -> Iterator[tuple[str, World]]:
    for number, member in enumerate(world.members):
        if member.lives:
            beaten = _beat(coordinator, member, number, world, rules, scene)
            if beaten != world:
                yield f"member {member.name}, start {member.start}, sends a heartbeat", beaten
    for commit in world.sent:
        after = _commit(coordinator, commit, world, rules)
        if after is not None and after != world:
            name = f"commit of {commit.position} in {commit.segment} under {commit.epoch} by {commit.holder}"
            yield f"the {name} arrives", after


def _beat(coordinator: Coordinator, member: Member, number: int, world: World, rules: Rules, scene: Scene) -> World:
    """The member says what it holds, and learns what it has and what it is to let go."""
    last = coordinator.heard[member.name]
    if last is not None and last[1] > member.start:
        # It came back meanwhile: this is the process before, which has nothing any more.
        return _with_member(world, number, member._replace(holds=()))
    known = _known(coordinator, rules)
    holds, broken = list[Hold](), ""
    for segment, (epoch, holder) in enumerate(zip(known.epochs, known.holders, strict=True)):
        mine = holder == (member.name, member.start) or (not rules.renews_epochs and holder[0] == member.name)
        going = rules.decides_once and any(record[:2] == ("given", segment) for record in coordinator.queue)
        if not mine or segment in coordinator.moving or going:
            continue
        held = next((hold for hold in member.holds if hold[:2] == (segment, epoch)), None)
        holds.append(held or Hold(segment, epoch, known.positions[segment]))
        broken = broken or ("" if held else _complaint_about(holds[-1], member, coordinator, world, scene))
    # It holds what it says, and what it is told now: only the next heartbeat can show that it let a segment go.
    heard = list(coordinator.heard)
    heard[member.name] = (world.now, member.start, frozenset(hold.segment for hold in (*member.holds, *holds)))
    excused = _is_sealed(coordinator, world)
    renewed = member._replace(holds=tuple(holds), renewed=world.now, excused=excused)
    after = _with_member(_with(world, coordinator._replace(heard=tuple(heard))), number, renewed)
    return after._replace(broken=broken)


def _complaint_about(hold: Hold, member: Member, coordinator: Coordinator, world: World, scene: Scene) -> str:
    others = [other for other in world.members if (other.name, other.start) != (member.name, member.start)]
    if any(held[:2] == hold[:2] for other in others for held in other.holds):
        return "two members hold a segment under one epoch"
    if hold.segment and fold(world.log).positions[0] < scene.lengths[0]:
        return "a successor is given away before its predecessors are committed"
    runs = [
        other
        for other in others
        if other.lives
        and not other.excused
        and other.name != member.name
        and other.renewed + SESSION > world.now
        and any(held.segment == hold.segment for held in other.holds)
    ]
    return "a segment is with two members" if runs and not _is_sealed(coordinator, world) else ""


def _deliver(member: Member, number: int, world: World, scene: Scene) -> Iterator[tuple[str, World]]:
    for place, hold in enumerate(member.holds):
        if hold.position < scene.lengths[hold.segment]:
            further = hold._replace(position=hold.position + 1)
            holds = (*member.holds[:place], further, *member.holds[place + 1 :])
            commit = Commit(hold.segment, hold.epoch, further.position, (member.name, member.start))
            after = _with_member(world, number, member._replace(holds=holds))
            yield (
                f"member {member.name}, start {member.start}, delivers {hold.position} of {hold.segment}",
                after._replace(sent=world.sent | {commit}),
            )


# -- commits -----------------------------------------------------------------------------------------------


def _commit(coordinator: Coordinator, commit: Commit, world: World, rules: Rules) -> World | None:
    """What becomes of a commit; None: it waits, and nothing is decided."""
    known = fold(coordinator.view)
    if any(record.segment == commit.segment for record in coordinator.queue):
        return None
    epoch = known.epochs[commit.segment]
    if rules.remembers_commits and known.committed.get((commit.segment, commit.epoch), -1) >= commit.position:
        return _told(commit, world, accepted=True)
    if rules.compares_epochs and commit.epoch != epoch:
        # A later epoch is another coordinator's: the log of this one is sealed, and it will see that.
        return _told(commit, world, accepted=False) if commit.epoch < epoch else None
    if not rules.remembers_commits and known.positions[commit.segment] >= commit.position:
        return _told(commit, world, accepted=True)
    record = Record("commit", commit.segment, commit.epoch, commit.position, commit.holder)
    after = _with(world, coordinator._replace(queue=(*coordinator.queue, record)))
    return after if rules.tells_when_durable else _told(commit, after, accepted=True)


def _told(commit: Commit, world: World, *, accepted: bool) -> World:
    is_durable = any(
        record.what == "commit" and record[1:3] == commit[:2] and record.position >= commit.position
        for record in world.log
    )
    if not accepted:
        refused = commit in world.accepted or is_durable
        return world._replace(broken="a commit that was accepted is refused") if refused else world
    broken = "" if is_durable else "a commit is answered that is not in the log"
    if commit not in world.accepted and not broken:
        # By now: somebody may get the segment between the moment when it lands and the answer.
        place = max(n for n, record in enumerate(world.log) if record.what == "commit" and record[1:3] == commit[:2])
        if fold(world.log[: place + 1]).epochs[commit.segment] != commit.epoch:
            broken = "a commit counts though somebody else has the segment"
    return world._replace(accepted=world.accepted | {commit}, broken=broken)


# -- coordinators and the store ----------------------------------------------------------------------------


def _work(
    coordinator: Coordinator, world: World, rules: Rules, scene: Scene, moves: int
) -> Iterator[tuple[str, World, int]]:
    if coordinator.queue:
        what, after = _store(coordinator, world, rules)
        yield what, after, moves
        return
    known = _known(coordinator, rules)
    for segment, (epoch, holder) in enumerate(zip(known.epochs, known.holders, strict=True)):
        if segment >= len(scene.lengths):
            break
        if segment and rules.drains_first and known.positions[0] < scene.lengths[0]:
            continue
        held = holder[0] >= 0
        if held and moves and segment not in coordinator.moving:
            moved = coordinator._replace(moving=coordinator.moving | {segment})
            yield f"wants {segment} elsewhere", _with(world, moved), moves - 1
        if held and not _is_free(coordinator, segment, holder, world, rules):
            continue
        for name, last in enumerate(coordinator.heard):
            if last is None or last[0] + SESSION <= world.now or (name, last[1]) == holder:
                continue
            if held and holder[0] == name and not rules.renews_epochs:
                continue
            record = Record("given", segment, epoch + 1, holder=(name, last[1]))
            given = coordinator._replace(queue=(record,), moving=coordinator.moving - {segment})
            yield f"gives {segment} to {name}", _with(world, given), moves


def _is_free(coordinator: Coordinator, segment: int, holder: tuple[int, int], world: World, rules: Rules) -> bool:
    """Whether its holder has let it go, has started again, or has not been heard for a session."""
    last = coordinator.heard[holder[0]]
    if last is None:
        return world.now >= coordinator.since + SESSION or not rules.waits_out_sessions
    when, start, held = last
    if start > holder[1] or when + SESSION <= world.now:
        return True
    # It lets go in the answer to a heartbeat, so that a later one no longer names the segment.
    return segment in coordinator.moving and (not rules.lets_go_first or segment not in held)


def _store(coordinator: Coordinator, world: World, rules: Rules) -> tuple[str, World]:
    record, *others = coordinator.queue
    if coordinator.landed is None:
        lands = not rules.fences or not _is_sealed(coordinator, world)
        after = world._replace(log=(*world.log, record)) if lands else world
        return f"has its {record.what} stored: {lands}", _with(after, coordinator._replace(landed=lands))
    if not coordinator.landed:
        return "sees that its log is sealed", _with(world, coordinator._replace(lives=False, queue=(), landed=None))
    knows = coordinator._replace(view=(*coordinator.view, record), queue=tuple(others), landed=None)
    after = _with(world, knows)
    if record.what == "commit":
        after = _told(Commit(record.segment, record.epoch, record.position, record.holder), after, accepted=True)
    return f"learns of its {record.what}", after


# -- what befalls them -------------------------------------------------------------------------------------


def _befall(fate: Fate, living: Sequence[Coordinator], world: World, scene: Scene) -> Iterator[Step]:
    if world.now < scene.ticks:
        yield "time passes", world._replace(now=world.now + 1), fate
    fewer = fate._replace(events=fate.events - 1)
    if fate.events:
        for coordinator in living:
            killed = coordinator._replace(lives=False, queue=(), landed=None)
            yield f"coordinator {coordinator.number} is killed", _with(world, killed), fewer
    last = world.coordinators[-1]
    if len(world.coordinators) < 3 and (fate.events or not last.lives):
        # One that lives may be taken for dead.
        taken = Coordinator(len(world.coordinators), world.now, view=world.log, heard=(None,) * scene.members)
        after = world._replace(coordinators=(*world.coordinators, taken))
        yield "another takes over", after, fewer if last.lives else fate
    if fate.restarts:
        for member in world.members:
            if not any(other.name == member.name and other.start > member.start for other in world.members):
                # The process before may live on.
                again = Member(member.name, member.start + 1)
                after = world._replace(members=(*world.members, again))
                yield f"member {member.name} starts again", after, fate._replace(restarts=fate.restarts - 1)


# -- promises ----------------------------------------------------------------------------------------------


def complaint(world: World, actors: Sequence[Actor]) -> str | None:
    """The promise that is broken now; None if all are kept."""
    if world.broken:
        return world.broken
    before, after = fold(world.log[:-1]).positions, fold(world.log).positions
    return "a position goes back" if any(new < old for new, old in zip(after, before, strict=True)) else None


def explore(scene: Scene, rules: Rules) -> tuple[int, set[World]]:
    """Explore a scene; returns the number of states and the last worlds."""
    nobody = (None,) * scene.members
    world = World(coordinators=(Coordinator(0, heard=nobody),), members=tuple(map(Member, range(scene.members))))
    actors: list[Actor] = [Members(), Work(scene.moves), Fate(scene.events, scene.restarts)]
    return explore_all(
        world,
        actors,
        steps_of=partial(steps_of, rules=rules, scene=scene),
        complaint=complaint,
    )
