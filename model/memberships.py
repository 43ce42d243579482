"""A stream group's members, assignments and commits (docs/design.md §12), as a small model.

The state that a group must keep is records in the log of one segment of `__groups`. The owner of that segment is the
group's coordinator. It may be killed, or be taken for dead while it lives. The last heartbeats of members, and the
segments that members have released, are in its memory alone. The topic has two segments: the first, and its successor.
Members join, send heartbeats, deliver messages, and commit positions. They are killed, stand still, and start again
under the same name. An answer to a heartbeat takes its time. Heartbeats and commits arrive late, out of order, twice,
and at any live coordinator.

A record says that a *start* of a member has joined, or is gone, or gives a segment to one, under an *epoch*: the number
of times that the segment was given to any member. A commit names the epoch. All interleavings are explored. After every
step these are checked:

- a commit counts only if it is in the log when it is answered, and if no other member has the segment by then;
- no two members hold a segment under the same epoch;
- the position of a segment never goes back;
- a commit that was accepted is accepted again when it is repeated;
- a segment is given to a member only when all messages of its predecessors are committed;
- no segment is with two members whose sessions both run, but for sessions that a coordinator with a sealed log keeps
  up, and for two processes with the same name.

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

    `fences`: a record lands only while the log is not sealed. `tells_when_durable`: commits and assignments are
    answered once their records have landed. `compares_epochs`: only the last epoch of a segment commits.
    `remembers_commits`: the log contains how far each epoch of a segment has committed, and not the position alone.
    `lets_go_first`: a segment moves once its holder has released it, or is gone. `names_releases`: a heartbeat names
    released segments; a segment that is missing among the held ones does not count as released. `renounces`: a member
    never takes a segment again under an epoch under which it has released it. `waits_out_sessions`: a coordinator that
    takes over gives each member a session from then on. `drains_first`: a successor waits for its predecessors.
    `renews_epochs`: a member that comes back gets its segments under new epochs. `decides_once`: once the end of a
    session is decided, no heartbeat renews it.
    """

    fences: bool = True
    tells_when_durable: bool = True
    compares_epochs: bool = True
    remembers_commits: bool = True
    lets_go_first: bool = True
    names_releases: bool = True
    renounces: bool = True
    waits_out_sessions: bool = True
    drains_first: bool = True
    renews_epochs: bool = True
    decides_once: bool = True


@dataclass(frozen=True)
class Scene:
    """How many messages the first segment has, and its successor if there is one; and until when the clock runs.

    `events`: how often a coordinator is killed or taken for dead. `restarts`: how often a member starts again. `moves`:
    how often a coordinator wants a segment elsewhere. `late`: how many heartbeats arrive late, or again, or
    are answered late.
    """

    lengths: tuple[int, ...] = (1,)
    members: int = 2
    events: int = 1
    restarts: int = 0
    moves: int = 1
    ticks: int = 1
    late: int = 0


class Record(NamedTuple):
    """A message of `__groups`: `what` is joined, gone, given or commit.

    `holder` is a member's name and the number of its start. `process` is the one that joined.
    """

    what: str
    segment: int = -1
    epoch: int = 0
    position: int = 0
    holder: tuple[int, int] = (-1, -1)
    process: int = -1


class Commit(NamedTuple):
    """A request that is on its way for ever: it may arrive late, and twice."""

    segment: int
    epoch: int
    position: int
    holder: tuple[int, int]


class Beat(NamedTuple):
    """A heartbeat, which is on its way for ever too. Segments are named with their epochs."""

    holder: tuple[int, int]
    holds: frozenset[tuple[int, int]]
    released: frozenset[tuple[int, int]]


class Coordinator(NamedTuple):
    """The owner of the log in one epoch of it, and what it knows.

    `heard`: the last heartbeat of each member, by name. `moving`: the segments that their holders are to release.
    `released`: those that they have released, by epoch.
    """

    number: int
    since: int = 0
    lives: bool = True
    view: tuple[Record, ...] = ()
    queue: tuple[Record, ...] = ()
    landed: bool | None = None
    heard: tuple[int | None, ...] = ()
    moving: frozenset[int] = frozenset()
    released: frozenset[tuple[int, int]] = frozenset()


class Hold(NamedTuple):
    """A segment in a member's hands: the epoch, and how far it has delivered."""

    segment: int
    epoch: int
    position: int


class Answer(NamedTuple):
    """The answer to a heartbeat that was sent then.

    `excused`: the answer of a coordinator with a sealed log. `fenced`: the start is over, or another has come.
    """

    sent: int
    excused: bool
    fenced: bool = False
    holds: tuple[Hold, ...] = ()
    releases: frozenset[tuple[int, int]] = frozenset()


class Member(NamedTuple):
    """A process of a member. `start` is negative until it has joined.

    `answer` is on its way to it. `let_go`: the segments it has released, by epoch. `released`: those that it names, as
    long as it is asked for them or assigned them. `renewed`: when it had sent the last heartbeat that was answered, and
    `excused`: by a sealed coordinator.
    """

    name: int
    start: int = -1
    lives: bool = True
    holds: tuple[Hold, ...] = ()
    let_go: frozenset[tuple[int, int]] = frozenset()
    released: frozenset[tuple[int, int]] = frozenset()
    answer: Answer | None = None
    renewed: int = -1
    excused: bool = False


class World(NamedTuple):
    """The log, its coordinators, all processes of members, and what was sent and what was accepted."""

    log: tuple[Record, ...] = ()
    coordinators: tuple[Coordinator, ...] = ()
    members: tuple[Member, ...] = ()
    now: int = 0
    sent: frozenset[Commit] = frozenset()
    beats: frozenset[Beat] = frozenset()
    accepted: frozenset[Commit] = frozenset()
    broken: str = ""


class Members(NamedTuple):
    """The steps of members, and of their network. So many more heartbeats arrive late, or again."""

    late: int


class Work(NamedTuple):
    """The work of coordinators without a request, and of the store. They may want so many more segments elsewhere."""

    moves: int


class Fate(NamedTuple):
    """Kills, false deaths and restarts, so many times more; and time."""

    events: int
    restarts: int


Actor = Members | Work | Fate
Step = tuple[str, World, Actor]


class Fold(NamedTuple):
    """The sum of records: by segment, its epoch and holder, its position; how far each epoch has committed.

    `starts`: the last start of each member that is not gone. `next_start`: the number of the next start.
    """

    epochs: tuple[int, ...]
    holders: tuple[tuple[int, int], ...]
    positions: tuple[int, ...]
    committed: dict[tuple[int, int], int]
    starts: dict[int, int]
    next_start: int


@lru_cache(maxsize=100_000)
def fold(records: tuple[Record, ...]) -> Fold:
    """Add up records, in the order of the log."""
    epochs, positions = [0 for _ in range(SEGMENTS)], [0 for _ in range(SEGMENTS)]
    holders = [(-1, -1) for _ in range(SEGMENTS)]
    committed, starts, next_start = dict[tuple[int, int], int](), dict[int, int](), 0
    for record in records:
        segment, (name, start) = record.segment, record.holder
        match record.what:
            case "joined":
                starts[name], next_start = start, max(next_start, start + 1)
            case "gone":
                if starts.get(name) == start:
                    del starts[name]
            case "given":
                epochs[segment], holders[segment] = record.epoch, record.holder
            case _:
                positions[segment] = record.position
                key = (segment, record.epoch)
                committed[key] = max(committed.get(key, 0), record.position)
    return Fold(tuple(epochs), tuple(holders), tuple(positions), committed, starts, next_start)


def steps_of(actor: Actor, world: World, rules: Rules, scene: Scene) -> Iterator[Step]:
    """Yield every step that the actor may take now."""
    living = [coordinator for coordinator in world.coordinators if coordinator.lives]
    match actor:
        case Members():
            for coordinator in living:
                for what, after, late in _ask(coordinator, world, rules, scene, actor.late):
                    yield f"{what} at coordinator {coordinator.number}", after, Members(late)
            for number, member in enumerate(world.members):
                if member.lives:
                    for what, after in _act(member, number, world, rules, scene):
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


def _ask(
    coordinator: Coordinator, world: World, rules: Rules, scene: Scene, late: int
) -> Iterator[tuple[str, World, int]]:
    for number, member in enumerate(world.members):
        if not member.lives or member.answer is not None:
            continue
        if member.start < 0:
            joining = _join(coordinator, member, number, world)
            if joining is not None:
                yield f"process {number} of member {member.name} joins", joining, late
            continue
        beat = _beat_of(member)
        heard, answer = _hear(coordinator, beat, world, rules)
        if answer is None:
            continue
        if not (_is_news(answer, member) or heard != coordinator):
            continue
        answered = _with(world, heard)._replace(beats=world.beats | {beat} if scene.late else world.beats)
        what = f"a heartbeat of member {member.name}, start {member.start}, is answered"
        yield what, _learn(answer, member, number, answered, rules, scene), late
        if late:
            yield f"{what} late", _with_member(answered, number, member._replace(answer=answer)), late - 1
    for beat in world.beats if late else ():
        heard, _ = _hear(coordinator, beat, world, rules)
        if heard != coordinator:
            yield f"a heartbeat of {beat.holder} from before arrives", _with(world, heard), late - 1
    for commit in world.sent:
        after = _commit(coordinator, commit, world, rules)
        if after is not None and after != world:
            name = f"commit of {commit.position} in {commit.segment} under {commit.epoch} by {commit.holder}"
            yield f"the {name} arrives", after, late


def _join(coordinator: Coordinator, member: Member, number: int, world: World) -> World | None:
    """Make the process a start of the member, once that is stored; None: it waits."""
    if any(record.what in ("joined", "gone") and record.holder[0] == member.name for record in coordinator.queue):
        return None
    starts = [fold(coordinator.view).next_start, *(each.holder[1] + 1 for each in coordinator.queue)]
    record = Record("joined", holder=(member.name, max(starts)), process=number)
    return _with(world, _heard(coordinator, member.name, world)._replace(queue=(*coordinator.queue, record)))


def _heard(coordinator: Coordinator, name: int, world: World) -> Coordinator:
    heard = coordinator.heard
    return coordinator._replace(heard=(*heard[:name], world.now, *heard[name + 1 :]))


def _beat_of(member: Member) -> Beat:
    holds = frozenset((hold.segment, hold.epoch) for hold in member.holds)
    return Beat((member.name, member.start), holds, member.released)


def _hear(coordinator: Coordinator, beat: Beat, world: World, rules: Rules) -> tuple[Coordinator, Answer | None]:
    """Return the coordinator after it, and its answer; None: it waits, or knows that it is a zombie."""
    known, (name, start) = _known(coordinator, rules), beat.holder
    excused = _is_sealed(coordinator, world)
    deciding = [
        record for record in coordinator.queue if record.what in ("joined", "gone") and record.holder[0] == name
    ]
    if (deciding and rules.decides_once) or start >= known.next_start:
        return coordinator, None
    if known.starts.get(name) != start:
        return coordinator, Answer(world.now, excused, fenced=True)
    holds, releases, released = list[Hold](), set[tuple[int, int]](), set(coordinator.released)
    for segment, (epoch, holder) in enumerate(zip(known.epochs, known.holders, strict=True)):
        if holder != beat.holder and (rules.renews_epochs or holder[0] != name):
            continue
        under = (segment, epoch)
        if under in beat.released or not (
            rules.names_releases or segment not in coordinator.moving or under in beat.holds
        ):
            released.add(under)
        if under in released:
            continue
        if segment in coordinator.moving:
            releases.add(under)
        else:
            holds.append(Hold(segment, epoch, known.positions[segment]))
    heard = _heard(coordinator, name, world)._replace(released=frozenset(released))
    return heard, Answer(world.now, excused, holds=tuple(holds), releases=frozenset(releases))


def _is_news(answer: Answer, member: Member) -> bool:
    told = {hold[:2] for hold in answer.holds} - member.let_go
    return told != {hold[:2] for hold in member.holds} or answer.fenced or member.renewed != answer.sent


def _act(member: Member, number: int, world: World, rules: Rules, scene: Scene) -> Iterator[tuple[str, World]]:
    """Let the member read the answer to its heartbeat, or deliver a message."""
    if member.answer is not None:
        learned = _learn(member.answer, member, number, world, rules, scene)
        yield f"member {member.name}, start {member.start}, gets its answer", learned
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


def _learn(answer: Answer, member: Member, number: int, world: World, rules: Rules, scene: Scene) -> World:
    """Take the segments in the answer but for released ones, and release those it asks for. Fenced, the member ends."""
    if answer.fenced:
        return _with_member(world, number, member._replace(answer=None, holds=(), lives=False))
    learned = member._replace(answer=None, renewed=answer.sent, excused=answer.excused)
    holds, released, broken = list[Hold](), set(answer.releases), ""
    for told in answer.holds:
        if rules.renounces and told[:2] in member.let_go:
            released.add(told[:2])
            continue
        held = next((hold for hold in member.holds if hold[:2] == told[:2]), None)
        holds.append(held or told)
        broken = broken or ("" if held else _complaint_about(told, learned, number, world, scene))
    let_go = member.let_go | answer.releases
    learned = learned._replace(holds=tuple(holds), let_go=let_go, released=frozenset(released))
    return _with_member(world, number, learned)._replace(broken=broken)


def _complaint_about(hold: Hold, member: Member, number: int, world: World, scene: Scene) -> str:
    others = [other for each, other in enumerate(world.members) if each != number]
    if any(held[:2] == hold[:2] for other in others for held in other.holds):
        return "two members hold a segment under one epoch"
    if hold.segment and fold(world.log).positions[0] < scene.lengths[0]:
        return "a successor is given away before its predecessors are committed"
    if not _session_runs(member, world):
        return ""
    both = any(
        _session_runs(other, world)
        and other.name != member.name
        and hold.segment in {held.segment for held in other.holds}
        for other in others
    )
    return "a segment is with two members" if both else ""


def _session_runs(member: Member, world: World) -> bool:
    return member.lives and not member.excused and member.renewed + SESSION > world.now


# -- commits -----------------------------------------------------------------------------------------------


def _commit(coordinator: Coordinator, commit: Commit, world: World, rules: Rules) -> World | None:
    """Return the outcome of a commit; None: it waits, and nothing is decided."""
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
        # By now: another member may get the segment between the moment when it lands and the answer.
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
    for name, start in known.starts.items():
        # The end of a start without a segment changes nothing.
        if (name, start) in known.holders and _is_over(coordinator, name, world, rules):
            ending = coordinator._replace(queue=(Record("gone", holder=(name, start)),))
            yield f"ends the session of {name}", _with(world, ending), moves
    for segment, (epoch, holder) in enumerate(zip(known.epochs, known.holders, strict=True)):
        if segment >= len(scene.lengths):
            break
        if segment and rules.drains_first and known.positions[0] < scene.lengths[0]:
            continue
        if holder[0] >= 0 and moves and segment not in coordinator.moving:
            moved = coordinator._replace(moving=coordinator.moving | {segment})
            yield f"wants {segment} elsewhere", _with(world, moved), moves - 1
        if not _is_free(coordinator, segment, known, rules):
            continue
        for name, start in known.starts.items():
            heard = coordinator.heard[name]
            if heard is None or (name, start) == holder or (holder[0] == name and not rules.renews_epochs):
                continue
            record = Record("given", segment, epoch + 1, holder=(name, start))
            given = coordinator._replace(queue=(record,), moving=coordinator.moving - {segment})
            yield f"gives {segment} to {name}", _with(world, given), moves


def _is_over(coordinator: Coordinator, name: int, world: World, rules: Rules) -> bool:
    """Whether the member was not heard for a session."""
    heard = coordinator.heard[name]
    if heard is None:
        return world.now >= coordinator.since + SESSION or not rules.waits_out_sessions
    return heard + SESSION <= world.now


def _is_free(coordinator: Coordinator, segment: int, known: Fold, rules: Rules) -> bool:
    """Whether no member has it, its holder has released it, has started again, or is gone."""
    (name, start), epoch = known.holders[segment], known.epochs[segment]
    if known.starts.get(name) != start or (segment, epoch) in coordinator.released:
        return True
    return segment in coordinator.moving and not rules.lets_go_first


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
    if record.what == "joined" and (member := world.members[record.process]).lives:
        joined = member._replace(start=record.holder[1], renewed=-1)
        after = _with_member(after, record.process, joined)
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
        # A live coordinator may be taken for dead.
        taken = Coordinator(len(world.coordinators), world.now, view=world.log, heard=(None,) * scene.members)
        after = world._replace(coordinators=(*world.coordinators, taken))
        yield "another takes over", after, fewer if last.lives else fate
    if fate.restarts:
        for name in range(scene.members):
            # The process before may live on.
            after = world._replace(members=(*world.members, Member(name)))
            yield f"member {name} starts again", after, fate._replace(restarts=fate.restarts - 1)


# -- promises ----------------------------------------------------------------------------------------------


def complaint(world: World, actors: Sequence[Actor]) -> str | None:
    """Return the promise that is broken now; None if all are kept."""
    if world.broken:
        return world.broken
    before, after = fold(world.log[:-1]).positions, fold(world.log).positions
    return "a position goes back" if any(new < old for new, old in zip(after, before, strict=True)) else None


def explore(scene: Scene, rules: Rules) -> tuple[int, set[World]]:
    """Explore a scene; returns the number of states and the last worlds."""
    joined = tuple(Record("joined", holder=(name, name), process=name) for name in range(scene.members))
    members = tuple(Member(name, start=name) for name in range(scene.members))
    coordinator = Coordinator(0, view=joined, heard=(0,) * scene.members)
    world = World(log=joined, coordinators=(coordinator,), members=members)
    actors: list[Actor] = [Members(scene.late), Work(scene.moves), Fate(scene.events, scene.restarts)]
    return explore_all(
        world,
        actors,
        steps_of=partial(steps_of, rules=rules, scene=scene),
        complaint=complaint,
    )
