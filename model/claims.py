"""A queue group's claims and acks (docs/design.md §12), as a small model.

The state that a group must keep is records in the log of one segment of `__groups`. The owner of that segment is the
group's coordinator. Leases are in its memory alone. A coordinator may be killed, or be taken for dead while it lives,
puts and hands out. It may also hand over in order. Consumers claim, ack and release at any live coordinator, and repeat
acks with lost answers.

A claim is known by its message and its *delivery*: the number of the hand-out in the coordinator's count. These records
make that number unique, and never less than the truth:

- `look`: no message at or above it was ever handed out. Messages below it rest;
- `expose`: a message rests no more. It may be handed out from here on, and never before. It is written when a consumer
  claims the message, and the claim is answered after that;
- `rest`: this delivery of the message is over. Only then is the message handed out again, under the next number. It
  rests until then. A message that was exposed and not handed out rests again by it, as if nothing had been;
- `leases`: the running leases when a coordinator hands over. It hands out nothing after that, and the next coordinator
  writes `taken` before it hands out anything: if leases are the last record, they are complete.

A coordinator that takes over from a dead one knows of no lease. It takes all exposed messages for handed out, waits for
as long as a lease may run, and writes `rest`, `spared`: such a delivery does not count when a message dies of too many.
If it hands over before that time is up, it writes them down as `guessed`: the next one does the same.

Coordinators of the version before are in some scenes. They write `horizon` and `back`, which are `look` and `rest` with
which a message is exposed at once; so they may hand it out without a record. All interleavings are explored. After
every step these are checked:

- one ack of a message is accepted at most, and it is in the log when it is answered;
- an ack that was accepted is accepted again when it is repeated, and the message is handed out no more;
- an ack does not count once another consumer has claimed the message;
- no message is with two consumers whose leases both run, but for those handed out by a coordinator with a sealed log;
- the delivery in the answer to a consumer is no less than the number of hand-outs;
- a message of a key is not handed out before the one ahead of it is acked or dead;
- a message is dead or acked, never both, and its dead letter is there once;
- a message dies only of deliveries that consumers have let end, and never of the end of a coordinator;
- to a coordinator that takes over, messages that were not handed out are free, unless a consumer was claiming them;
- no more messages are with consumers than the group's limit.

`Rules` are the safeguards. Without any one of them the model must find a broken promise.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple

from model.explorer import explore_all

LEASE = 1


@dataclass(frozen=True)
class Rules:
    """The safeguards. A test takes each one away.

    `fences`: a record lands only while the log is not sealed. `answers_when_durable`: an ack is answered once its
    record has landed. `remembers_acks`: the log contains by which delivery a message was acked. `horizon_first`: only
    messages below the horizon are handed out. `records_ends`: a message is handed out again only once the end of the
    delivery before is in the log. `rests_until_claimed`: messages rest until a consumer claims them. `exposes_first`:
    resting messages are handed out only once the log allows it. `compares_deliveries`: an ack of another delivery than
    the last is refused. `pending_blocks`: nothing is decided about a message while a record about it is on its way.
    `waits_out_leases`: a coordinator that knows of no leases waits for as long as one may run. `writes_leases`: a
    coordinator that hands over writes them down. `stops_handing_out`: it hands out nothing after that.
    `marks_its_start`: a coordinator that knows leases hands out nothing before the log contains its start.
    `waits_for_the_key`: the next message of a key waits until the ack of the one ahead is in the log. `intent_first`:
    the death of a message is in the log before its dead letter is published. `same_sequence`: the dead letter has the
    same sequence, whichever coordinator publishes it. `spares_guessed`: a delivery that ends with its coordinator does
    not count. `marks_guessed`: a coordinator that hands over distinguishes such deliveries from leases that it knows.
    `counts_guessed`: possible hand-outs of the coordinator before count for the limit.
    """

    fences: bool = True
    answers_when_durable: bool = True
    remembers_acks: bool = True
    horizon_first: bool = True
    records_ends: bool = True
    rests_until_claimed: bool = True
    exposes_first: bool = True
    compares_deliveries: bool = True
    pending_blocks: bool = True
    waits_out_leases: bool = True
    writes_leases: bool = True
    stops_handing_out: bool = True
    marks_its_start: bool = True
    waits_for_the_key: bool = True
    intent_first: bool = True
    same_sequence: bool = True
    spares_guessed: bool = True
    marks_guessed: bool = True
    counts_guessed: bool = True


@dataclass(frozen=True)
class Scene:
    """So many messages, of one key or none, are delivered so many times at most, until the clock stands at `ticks`.

    `claims`: how often consumers claim in all. `events`: how often a coordinator is killed, taken for dead, or asked to
    hand over. `goes_away`: or a claiming consumer goes away. `limit`: so many messages are with consumers at the most.
    `old`: in these epochs, the coordinator is of the version before.
    """

    messages: int = 1
    claims: int = 2
    keyed: bool = False
    max_deliveries: int = 9
    goes_away: bool = False
    limit: int = 9
    old: frozenset[int] = frozenset()
    ticks: int = 2
    events: int = 2


class Lease(NamedTuple):
    """A claim of one message. `excused`: the log of its coordinator was sealed when it was handed out.

    `guessed`: the coordinator that wrote it down does not know whether a consumer has it.
    """

    message: int
    delivery: int
    until: int
    excused: bool = False
    guessed: bool = False


class Record(NamedTuple):
    """A message of `__groups`: `what` is look, horizon, ack, back, rest, expose, dying, dead, leases or taken."""

    what: str
    epoch: int
    message: int = -1
    delivery: int = 0
    leases: tuple[Lease, ...] = ()
    spared: bool = False


class Coordinator(NamedTuple):
    """The owner of the log in one epoch, and what it knows: records of the log, its leases, and records on their way.

    The first `inherited` records in `view` were there when it took over, at the time `since`. `clean`: it knows the
    leases of the one before. `landed`: the outcome of the first record in `queue`; None is not known yet.
    """

    epoch: int
    since: int = 0
    inherited: int = 0
    clean: bool = True
    lives: bool = True
    hands_over: bool = False
    view: tuple[Record, ...] = ()
    leases: tuple[Lease, ...] = ()
    queue: tuple[Record, ...] = ()
    landed: bool | None = None
    published: frozenset[int] = frozenset()


class World(NamedTuple):
    """The log and its coordinators, and the truth: running leases, hand-outs, accepted acks, and dead letters.

    `ended` are deliveries that a consumer has let end: it gave the message back, or its time was over. `asked` are
    those that a consumer was claiming.
    """

    log: tuple[Record, ...] = ()
    coordinators: tuple[Coordinator, ...] = (Coordinator(0),)
    now: int = 0
    running: tuple[Lease, ...] = ()
    handed_out: tuple[int, ...] = ()
    accepted: frozenset[tuple[int, int]] = frozenset()
    letters: frozenset[tuple[int, int]] = frozenset()
    ended: frozenset[tuple[int, int]] = frozenset()
    asked: frozenset[tuple[int, int]] = frozenset()
    broken: str = ""


class Consumers(NamedTuple):
    """May claim so many times more. No consumer forgets its claim: it may ack or release late, and repeat that.

    A claim contains all that counts about a consumer, so it does not matter which of them has it.
    """

    claims: int
    held: tuple[tuple[int, int], ...] = ()


class Work(NamedTuple):
    """The work of coordinators without a request, and of the store."""


class Fate(NamedTuple):
    """Kills, false deaths and hand-overs, so many times more; and time."""

    events: int


Actor = Consumers | Work | Fate
Step = tuple[str, World, Actor]


class Fold(NamedTuple):
    """The sum of records, by message: the delivery that was acked, the last one that is over, and whether it rests.

    `spared` is how many deliveries do not count.
    """

    horizon: int
    acked: dict[int, int]
    over: dict[int, int]
    spared: dict[int, int]
    dying: frozenset[int]
    dead: frozenset[int]
    resting: frozenset[int]

    def is_exposed(self, message: int) -> bool:
        """Whether it may have been handed out since the last delivery that is over."""
        return message < self.horizon and message not in self.resting

    def is_done(self, message: int) -> bool:
        """Whether it is never handed out again."""
        return message in self.acked or message in self.dying or message in self.dead


@lru_cache(maxsize=100_000)
def fold(records: tuple[Record, ...]) -> Fold:
    """Add up records, in the order of the log."""
    horizon, acked, over, spared = 0, dict[int, int](), dict[int, int](), dict[int, int]()
    dying, dead, resting = set[int](), set[int](), set[int]()
    for record in records:
        match record.what:
            case "look" | "horizon":
                if record.what == "look":
                    resting.update(range(horizon, record.message))
                horizon = max(horizon, record.message)
            case "ack":
                acked.setdefault(record.message, record.delivery)
            case "back" | "rest":
                over[record.message] = max(over.get(record.message, 0), record.delivery)
                spared[record.message] = spared.get(record.message, 0) + record.spared
                if record.what == "rest":
                    resting.add(record.message)
            case "expose":
                resting.discard(record.message)
            case "dying":
                dying.add(record.message)
            case "dead":
                dead.add(record.message)
    return Fold(horizon, acked, over, spared, frozenset(dying), frozenset(dead), frozenset(resting))


def steps_of(actor: Actor, world: World, rules: Rules, scene: Scene) -> Iterator[Step]:
    """Every step that the actor may take now."""
    for coordinator in world.coordinators:
        if not coordinator.lives:
            continue
        name = f"coordinator {coordinator.epoch}"
        match actor:
            case Consumers():
                for what, after, changed in _consume(actor, coordinator, world, rules, scene):
                    yield f"a consumer {what} at {name}", after, changed
            case Work():
                for what, after in _work(coordinator, world, rules, scene):
                    yield f"{name} {what}", after, actor
            case Fate() if actor.events:
                for what, after in _befall(coordinator, world, rules, scene):
                    yield f"{name} {what}", after, Fate(actor.events - 1)
    if isinstance(actor, Fate):
        if actor.events and len(world.coordinators) < 3:
            yield "another takes over", _take_over(world, rules, scene), Fate(actor.events - 1)
        if world.now < scene.ticks:
            yield "time passes", world._replace(now=world.now + 1), actor


def _with(world: World, coordinator: Coordinator) -> World:
    all_of_them = list(world.coordinators)
    all_of_them[coordinator.epoch] = coordinator
    return world._replace(coordinators=tuple(all_of_them))


def _dead(coordinator: Coordinator) -> Coordinator:
    """Return one that takes no step any more, killed or after its hand-over: its knowledge does not count."""
    return Coordinator(coordinator.epoch, lives=False)


def _queued(
    coordinator: Coordinator, what: str, message: int, delivery: int = 0, *, spared: bool = False
) -> Coordinator:
    record = Record(what, coordinator.epoch, message, delivery, spared=spared)
    return coordinator._replace(queue=(*coordinator.queue, record))


def _is_sealed(coordinator: Coordinator, world: World) -> bool:
    return coordinator.epoch < len(world.coordinators) - 1


# -- what a coordinator knows ------------------------------------------------------------------------------


def _is_undecided(coordinator: Coordinator, message: int, rules: Rules) -> bool:
    return rules.pending_blocks and any(record.message == message for record in coordinator.queue)


def _lease_of(coordinator: Coordinator, message: int, delivery: int, rules: Rules) -> Lease | None:
    """Return the lease that it knows: its own, or one that the coordinator before it wrote down."""
    known = [*coordinator.leases, *(each for each in _inherited(coordinator) if not _is_guess(each, rules))]
    return next((lease for lease in known if lease[:2] == (message, delivery)), None)


def _inherited(coordinator: Coordinator) -> tuple[Lease, ...]:
    is_told = coordinator.clean and coordinator.inherited
    return coordinator.view[coordinator.inherited - 1].leases if is_told else ()


def _is_guess(lease: Lease, rules: Rules) -> bool:
    return lease.guessed and rules.marks_guessed


def _guess_of(coordinator: Coordinator, message: int, rules: Rules) -> Lease | None:
    """Return the delivery that would be next, if the coordinator before may have handed it out."""
    delivery = fold(coordinator.view).over.get(message, 0) + 1
    if coordinator.clean:
        told = (each for each in _inherited(coordinator) if _is_guess(each, rules))
        return next((lease for lease in told if lease[:2] == (message, delivery)), None)
    before = fold(coordinator.view[: coordinator.inherited])
    if not before.is_exposed(message) or delivery != before.over.get(message, 0) + 1:
        return None
    return Lease(message, delivery, coordinator.since + LEASE, guessed=True)


def _held(coordinator: Coordinator, rules: Rules, scene: Scene) -> int:
    """How many messages are with consumers as far as it knows, or will be."""
    known = fold(coordinator.view)
    return sum(
        _is_undecided(coordinator, message, rules)
        or _lease_of(coordinator, message, known.over.get(message, 0) + 1, rules) is not None
        or (rules.counts_guessed and _guess_of(coordinator, message, rules) is not None)
        for message in range(scene.messages)
        if not known.is_done(message)
    )


def _has_begun(coordinator: Coordinator) -> bool:
    """Whether the leases that it knows are not the last record any more."""
    return not (coordinator.clean and coordinator.inherited) or len(coordinator.view) > coordinator.inherited


def _is_available(coordinator: Coordinator, message: int, rules: Rules, scene: Scene) -> bool:
    known = fold(coordinator.view)
    return (
        not known.is_done(message)
        and (_has_begun(coordinator) or not rules.marks_its_start)
        and (message < known.horizon or not rules.horizon_first)
        and not _is_undecided(coordinator, message, rules)
        and _lease_of(coordinator, message, known.over.get(message, 0) + 1, rules) is None
        and _guess_of(coordinator, message, rules) is None
        and (scene.limit >= scene.messages or _held(coordinator, rules, scene) < scene.limit)
        and (not scene.keyed or _is_first_of_its_key(coordinator, message, rules))
    )


def _is_first_of_its_key(coordinator: Coordinator, message: int, rules: Rules) -> bool:
    """Whether all messages ahead of it are done, as far as the coordinator knows; all are of one key."""
    known = fold(coordinator.view)
    acked = (known if rules.waits_for_the_key else fold((*coordinator.view, *coordinator.queue))).acked
    return all(acked.get(before) or before in known.dead for before in range(message))


# -- consumers ---------------------------------------------------------------------------------------------


def _consume(
    consumers: Consumers, coordinator: Coordinator, world: World, rules: Rules, scene: Scene
) -> Iterator[tuple[str, World, Consumers]]:
    if coordinator.hands_over and rules.stops_handing_out:
        return
    if consumers.claims:
        for message in range(scene.messages):
            if not _is_available(coordinator, message, rules, scene):
                continue
            known = fold(coordinator.view)
            delivery = known.over.get(message, 0) + 1
            is_exposed = message not in known.resting and (message < known.horizon or not rules.horizon_first)
            if not is_exposed and coordinator.epoch not in scene.old and not coordinator.queue:
                asked = world.asked | {(message, delivery)}
                exposed = _with(world._replace(asked=asked), _queued(coordinator, "expose", message))
                yield f"asks for {message}", exposed, consumers
            if is_exposed or not rules.exposes_first:
                held = Consumers(consumers.claims - 1, tuple(sorted({*consumers.held, (message, delivery)})))
                yield f"claims {message}", _hand_out(coordinator, message, delivery, world, scene), held
    if coordinator.hands_over or len(coordinator.queue) > 1:
        return
    for message, delivery in consumers.held:
        answer = _answer(coordinator, message, delivery, rules)
        match answer:
            case None:
                continue
            case "later":
                yield f"acks {message}", _ack(coordinator, message, delivery, world, rules), consumers
                if delivery <= fold(coordinator.view).over.get(message, 0):
                    continue
                yield f"releases {message}", _release(coordinator, message, delivery, world, rules, scene), consumers
            case _:
                told = _told(message, delivery, world, accepted=answer == "yes")
                if told != world:
                    yield f"acks {message} and is told {answer}", told, consumers


def _release(coordinator: Coordinator, message: int, delivery: int, world: World, rules: Rules, scene: Scene) -> World:
    told = world._replace(ended=world.ended | {(message, delivery)}, running=_without(world.running, message, delivery))
    if _is_last(coordinator, message, delivery, scene):
        return _given_up(coordinator, message, delivery, told, scene)
    return _with(told, _queued(coordinator, _end_of(coordinator, rules, scene), message, delivery))


def _end_of(coordinator: Coordinator, rules: Rules, scene: Scene) -> str:
    return "rest" if rules.rests_until_claimed and coordinator.epoch not in scene.old else "back"


def _is_last(coordinator: Coordinator, message: int, delivery: int, scene: Scene) -> bool:
    return delivery - fold(coordinator.view).spared.get(message, 0) >= scene.max_deliveries


def _given_up(coordinator: Coordinator, message: int, delivery: int, world: World, scene: Scene) -> World:
    after = _with(world, _queued(coordinator, "dying", message, delivery))
    ended = sum(each[0] == message for each in world.ended)
    early = ended < scene.max_deliveries
    return after._replace(broken="a message dies of the end of a coordinator") if early else after


def _answer(coordinator: Coordinator, message: int, delivery: int, rules: Rules) -> str | None:
    """Answer yes, no, or later: when the ack is in the log. None: it waits, and nothing is decided."""
    known = fold(coordinator.view)
    last = known.over.get(message, 0) + 1
    if message in known.acked:
        return "yes" if rules.remembers_acks and known.acked[message] == delivery else "no"
    if message in known.dying or message in known.dead:
        return "no"
    if _is_undecided(coordinator, message, rules):
        return None
    if rules.compares_deliveries and delivery != last:
        # One above the last is a claim from another coordinator: this one's log is sealed, and it will see that.
        return "no" if delivery < last else None
    return "later"


def _hand_out(coordinator: Coordinator, message: int, delivery: int, world: World, scene: Scene) -> World:
    excused = _is_sealed(coordinator, world)
    lease = Lease(message, delivery, world.now + LEASE, excused)
    counted = list(world.handed_out or (0,) * scene.messages)
    counted[message] += 1
    after = _with(world, coordinator._replace(leases=(*coordinator.leases, lease)))
    return after._replace(
        running=(*world.running, lease),
        handed_out=tuple(counted),
        broken=_complaint_about(lease, counted[message], world, scene),
    )


def _complaint_about(lease: Lease, hand_outs: int, world: World, scene: Scene) -> str:
    true = fold(world.log)
    if scene.keyed and any(before not in true.acked and before not in true.dead for before in range(lease.message)):
        return "a message is handed out before the one ahead of it is done"
    if lease.excused:
        return ""
    if any(r.message == lease.message and r.until > world.now and not r.excused for r in world.running):
        return "a message is with two consumers"
    if lease.delivery < hand_outs:
        return "a delivery is told as less than it is"
    if any(message == lease.message for message, _ in world.accepted):
        return "a message is handed out after its ack"
    running = {each.message for each in world.running if each.until > world.now and not each.excused}
    if sum(not true.is_done(message) for message in running | {lease.message}) > scene.limit:
        return "more messages are with consumers than the limit"
    return ""


def _ack(coordinator: Coordinator, message: int, delivery: int, world: World, rules: Rules) -> World:
    after = _with(world, _queued(coordinator, "ack", message, delivery))
    return after if rules.answers_when_durable else _told(message, delivery, after, accepted=True)


def _told(message: int, delivery: int, world: World, *, accepted: bool) -> World:
    this = (message, delivery)
    if not accepted:
        refused = this in world.accepted or fold(world.log).acked.get(message) == delivery
        return world._replace(broken="an ack that was accepted is refused") if refused else world
    broken = ""
    if any(other[0] == message and other != this for other in world.accepted):
        broken = "two acks of a message are accepted"
    elif fold(world.log).acked.get(message) != delivery:
        broken = "an ack is answered that is not in the log"
    elif this not in world.accepted and any(
        r.message == message and r.delivery > delivery and not r.excused for r in world.running
    ):
        broken = "an ack counts though somebody else has claimed the message"
    running = _without(world.running, message, delivery)
    return world._replace(accepted=world.accepted | {this}, running=running, broken=broken)


def _without(leases: tuple[Lease, ...], message: int, delivery: int) -> tuple[Lease, ...]:
    return tuple(lease for lease in leases if lease[:2] != (message, delivery))


# -- coordinators and the store ----------------------------------------------------------------------------


def _work(coordinator: Coordinator, world: World, rules: Rules, scene: Scene) -> Iterator[tuple[str, World]]:
    if coordinator.queue:
        yield from _store(coordinator, world, rules)
    if coordinator.hands_over or len(coordinator.queue) > 1:
        return
    known = fold(coordinator.view)
    is_old = coordinator.epoch in scene.old
    look = "look" if rules.rests_until_claimed and not is_old else "horizon"
    if known.horizon < scene.messages and not any(record.what == look for record in coordinator.queue):
        yield "raises the horizon", _with(world, _queued(coordinator, look, known.horizon + 1))
    if not _has_begun(coordinator) and not coordinator.queue:
        yield "begins", _with(world, _queued(coordinator, "taken", -1))
    for message in sorted(known.resting) if is_old else ():
        if not known.is_done(message) and not _is_undecided(coordinator, message, rules):
            yield f"exposes {message}", _with(world, _queued(coordinator, "expose", message))
    for message in range(scene.messages):
        for what, after in _end(coordinator, message, known, world, rules, scene):
            yield f"{what} {message}", after


def _store(coordinator: Coordinator, world: World, rules: Rules) -> Iterator[tuple[str, World]]:
    record, *others = coordinator.queue
    if coordinator.landed is None:
        lands = not rules.fences or not _is_sealed(coordinator, world)
        after = world._replace(log=(*world.log, record)) if lands else world
        yield (
            f"has its {record.what} {'stored' if lands else 'refused'}",
            _with(after, coordinator._replace(landed=lands)),
        )
    elif not coordinator.landed:
        yield "sees that its log is sealed", _with(world, _dead(coordinator))
    else:
        knows = coordinator._replace(view=(*coordinator.view, record), queue=tuple(others), landed=None)
        is_over = record.what == "leases" and rules.stops_handing_out
        after = _with(world, _dead(coordinator) if is_over else knows)
        if record.what == "ack":
            after = _told(record.message, record.delivery, after, accepted=True)
        yield f"learns of its {record.what}", after


def _end(
    coordinator: Coordinator, message: int, known: Fold, world: World, rules: Rules, scene: Scene
) -> Iterator[tuple[str, World]]:
    """End a delivery by time; and a message that was delivered too often."""
    if message in known.dying and message not in known.dead and not _is_undecided(coordinator, message, rules):
        if message in coordinator.published:
            yield "has buried", _with(world, _queued(coordinator, "dead", message))
        else:
            yield "publishes the dead letter of", _publish_letter(coordinator, message, world, rules)
        return
    delivery = known.over.get(message, 0) + 1
    if known.is_done(message) or _is_undecided(coordinator, message, rules):
        return
    lease, guess = _lease_of(coordinator, message, delivery, rules), _guess_of(coordinator, message, rules)
    either = lease or guess
    if either is None or (either.until > world.now and (rules.waits_out_leases or lease is not None)):
        return
    if lease is not None and not lease.guessed:
        world = world._replace(ended=world.ended | {(message, delivery)})
    spared = lease is None and rules.spares_guessed and coordinator.epoch not in scene.old
    if not spared and _is_last(coordinator, message, delivery, scene):
        if rules.intent_first:
            yield "gives up", _given_up(coordinator, message, delivery, world, scene)
        elif message in coordinator.published:
            yield "has buried", _with(world, _queued(coordinator, "dead", message))
        else:
            yield "publishes the dead letter of", _publish_letter(coordinator, message, world, rules)
        return
    over = Record(_end_of(coordinator, rules, scene), coordinator.epoch, message, delivery, spared=spared)
    if rules.records_ends:
        yield "takes back", _with(world, coordinator._replace(queue=(*coordinator.queue, over)))
    else:
        yield "takes back", _with(world, coordinator._replace(view=(*coordinator.view, over)))


def _publish_letter(coordinator: Coordinator, message: int, world: World, rules: Rules) -> World:
    """Publish the letter: its topic stores one message for a sequence (docs/design.md §9) of the group."""
    sequence = 0 if rules.same_sequence else coordinator.epoch
    after = _with(world, coordinator._replace(published=coordinator.published | {message}))
    return after._replace(letters=world.letters | {(message, sequence)})


# -- what befalls them -------------------------------------------------------------------------------------


def _befall(coordinator: Coordinator, world: World, rules: Rules, scene: Scene) -> Iterator[tuple[str, World]]:
    yield "is killed", _with(world, _dead(coordinator))
    if not coordinator.queue and not coordinator.hands_over:
        written = tuple(_written_down(coordinator, rules)) if rules.writes_leases else ()
        record = Record("leases", coordinator.epoch, leases=written)
        yield "hands over", _with(world, coordinator._replace(hands_over=True, queue=(record,)))
    if not scene.goes_away or coordinator.hands_over or coordinator.queue:
        return
    known = fold(coordinator.view)
    for message in range(scene.messages):
        if known.is_exposed(message) and _is_available(coordinator, message, rules, scene):
            # The asking consumer is gone. So it was not handed out: it rests again.
            over = known.over.get(message, 0)
            yield f"withdraws {message}", _with(world, _queued(coordinator, "rest", message, over))


def _written_down(coordinator: Coordinator, rules: Rules) -> Iterator[Lease]:
    """Yield leases for the next coordinator, also expired ones: a delivery is over only once that is in the log.

    Possible hand-outs of the coordinator before count as leased, for as long as a lease may run.
    """
    known = fold(coordinator.view)
    for message in range(known.horizon):
        delivery = known.over.get(message, 0) + 1
        lease = _lease_of(coordinator, message, delivery, rules) or _guess_of(coordinator, message, rules)
        if lease is not None and not known.is_done(message):
            yield lease


def _take_over(world: World, rules: Rules, scene: Scene) -> World:
    """Let another coordinator seal the log at its end, and begin with its records."""
    epoch = len(world.coordinators)
    last = world.log[-1] if world.log else None
    # No record, no horizon: nothing was handed out.
    clean = last is None or last.what == "leases"
    taken = Coordinator(epoch, world.now, len(world.log), clean, view=world.log)
    after = world._replace(coordinators=(*world.coordinators, taken))
    waits = any(_waits_in_vain(taken, message, world, rules, scene) for message in range(scene.messages))
    return after._replace(broken="what was never handed out is withheld") if waits else after


def _waits_in_vain(coordinator: Coordinator, message: int, world: World, rules: Rules, scene: Scene) -> bool:
    """Whether a message counts as handed out that no consumer has claimed, by the records of this version."""
    guess = _guess_of(coordinator, message, rules)
    if guess is None or guess[:2] in world.asked or fold(world.log).is_done(message):
        return False
    exposed = [_exposed_for(world.log[:count], message) for count in range(len(world.log) + 1)]
    last = max(count for count in range(1, len(exposed)) if exposed[count] != exposed[count - 1])
    return world.log[last - 1].epoch not in scene.old


def _exposed_for(records: tuple[Record, ...], message: int) -> int | None:
    """Return the delivery as which a message may be handed out; None if it may not."""
    known = fold(records)
    return known.over.get(message, 0) + 1 if known.is_exposed(message) else None


# -- promises ----------------------------------------------------------------------------------------------


def complaint(world: World, actors: Sequence[Actor]) -> str | None:
    """Return the promise that is broken now; None if all are kept."""
    if world.broken:
        return world.broken
    buried = [message for message, _ in world.letters]
    if len(buried) != len(set(buried)):
        return "a dead letter is there twice"
    if any(message in buried for message, _ in world.accepted):
        return "a message is both acked and dead"
    return None


def explore(scene: Scene, rules: Rules) -> tuple[int, set[World]]:
    """Explore a scene; returns the number of states and the last worlds."""
    actors: list[Actor] = [Consumers(scene.claims), Work(), Fate(scene.events)]
    return explore_all(World(), actors, steps_of=partial(steps_of, rules=rules, scene=scene), complaint=complaint)
