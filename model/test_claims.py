"""The model of claims keeps its promises, and needs each of its safeguards."""

import pytest

from model.claims import Rules, Scene, World, explore, fold
from model.explorer import Violation

BESIDE = Scene(ticks=1)
OFTEN = Scene(ticks=0, events=3)
AGAIN = Scene(claims=3, ticks=0, goes_away=True)
KEYED = Scene(messages=2, keyed=True, ticks=1, events=1)
DEADLY = Scene(claims=1, max_deliveries=1, ticks=1)
LIMITED = Scene(messages=2, limit=1, ticks=0, events=1)
OLD_FIRST = Scene(ticks=1, events=1, old=frozenset({0}))
OLD_BETWEEN = Scene(ticks=1, old=frozenset({1}))
UNCLAIMED = Scene(claims=0, max_deliveries=1, ticks=1, events=3, old=frozenset({0}))
OLD_KEYED = Scene(messages=2, keyed=True, ticks=1, events=1, old=frozenset({0}))


def again(world: World) -> bool:
    """Whether a message was acked that another coordinator had handed out before."""
    return any(delivery > 1 for _, delivery in world.accepted) and len(world.coordinators) > 1


@pytest.mark.parametrize(
    ("scene", "fewest"),
    [
        (BESIDE, 50_000),
        (OFTEN, 20_000),
        (AGAIN, 20_000),
        (KEYED, 20_000),
        (DEADLY, 20_000),
        (LIMITED, 20_000),
        (OLD_FIRST, 3_000),
        (OLD_BETWEEN, 20_000),
    ],
)
def test_all_interleavings_keep_the_promises(scene: Scene, fewest: int) -> None:
    states, ends = explore(scene, Rules())
    assert states > fewest
    # All that there is to do gets done, also where a coordinator was killed or lived on as a zombie.
    everything = set(range(scene.messages))
    assert any({message for message, _ in world.accepted} == everything for world in ends)
    assert scene.ticks == 0 or scene is DEADLY or any(again(world) for world in ends)
    assert scene is not DEADLY or any(fold(world.log).dead for world in ends)


@pytest.mark.parametrize(
    ("scene", "rules", "promise"),
    [
        (BESIDE, Rules(fences=False), "accepted is refused"),
        (BESIDE, Rules(answers_when_durable=False), "not in the log"),
        (BESIDE, Rules(remembers_acks=False), "accepted is refused"),
        (BESIDE, Rules(horizon_first=False), "less than it is"),
        (KEYED, Rules(records_ends=False), "accepted is refused"),
        (BESIDE, Rules(compares_deliveries=False), "somebody else has claimed"),
        (BESIDE, Rules(pending_blocks=False), "accepted is refused"),
        (BESIDE, Rules(waits_out_leases=False), "with two consumers"),
        (BESIDE, Rules(writes_leases=False), "with two consumers"),
        (OFTEN, Rules(stops_handing_out=False), "less than it is"),
        (OFTEN, Rules(marks_its_start=False), "less than it is"),
        (AGAIN, Rules(exposes_first=False), "less than it is"),
        (OLD_KEYED, Rules(waits_for_the_key=False), "before the one ahead"),
        (DEADLY, Rules(intent_first=False), "both acked and dead"),
        (DEADLY, Rules(same_sequence=False), "there twice"),
        (BESIDE, Rules(rests_until_claimed=False), "never handed out is withheld"),
        (DEADLY, Rules(spares_guessed=False), "dies of the end of a coordinator"),
        (UNCLAIMED, Rules(marks_guessed=False), "dies of the end of a coordinator"),
        (LIMITED, Rules(counts_guessed=False), "more messages are with consumers"),
    ],
)
def test_each_safeguard_is_needed(scene: Scene, rules: Rules, promise: str) -> None:
    with pytest.raises(Violation, match=promise):
        explore(scene, rules)
