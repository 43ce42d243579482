"""Rounds of maintenance look at what happens at once, and at idle topics in turn."""

from collections import Counter

from mq.maintenance.idle_topics import QUIET_ROUNDS, IdleTopics

TOPICS = [f"t{number}" for number in range(600)]


class Rounds:
    """Rounds over topics with these marks, in which nothing is to be done for `rest_rounds`."""

    def __init__(self, *topics: str, rest_rounds: int = 60) -> None:
        self.idle = IdleTopics(booked_per_round=16)
        self.marks = dict.fromkeys(topics, 0)
        self.rest_rounds = rest_rounds

    def due(self) -> list[str]:
        self.idle.begin_round()
        return [topic for topic, mark in self.marks.items() if self.idle.is_due(topic, mark)]

    def pass_round(self) -> list[str]:
        due = self.due()
        for topic in due:
            self.idle.looked(topic, self.marks[topic], rest_rounds=self.rest_rounds)
        return due


def test_idle_topics_have_their_turn_and_are_spread_over_the_rounds() -> None:
    rounds = Rounds(*TOPICS)
    for _ in range(QUIET_ROUNDS + 1):
        assert rounds.pass_round() == TOPICS
    for _ in range(60):
        rounds.pass_round()
    looks = [rounds.pass_round() for _ in range(120)]
    assert Counter(topic for due in looks for topic in due) == dict.fromkeys(TOPICS, 2)
    assert max(map(len, looks)) <= 3 * len(TOPICS) / 60


def test_what_happens_is_looked_at_in_each_round_until_it_is_quiet() -> None:
    rounds = Rounds("busy", "idle")
    for _ in range(70):
        rounds.pass_round()
    for number in range(1, 5):
        rounds.marks["busy"] = number
        assert "busy" in rounds.pass_round()
    assert all("busy" in rounds.pass_round() for _ in range(QUIET_ROUNDS))
    assert sum("busy" in rounds.pass_round() for _ in range(60)) <= 2


def test_what_happens_during_a_look_is_news() -> None:
    rounds = Rounds("t")
    for _ in range(100):
        rounds.pass_round()
    rounds.marks["t"] = 1
    (topic,) = rounds.due()
    rounds.marks["t"] = 2
    rounds.idle.looked(topic, 1, rest_rounds=60)
    assert [rounds.pass_round() for _ in range(QUIET_ROUNDS + 1)] == [["t"]] * (QUIET_ROUNDS + 1)


def test_a_topic_with_something_to_do_is_looked_at_in_each_round() -> None:
    rounds = Rounds("t", rest_rounds=0)
    assert all(rounds.pass_round() == ["t"] for _ in range(50))


def test_what_is_about_to_be_due_is_looked_at_then() -> None:
    rounds = Rounds("t", rest_rounds=7)
    looks = [bool(rounds.pass_round()) for _ in range(70)][14:]
    assert sum(looks) == len(looks) / 7


def test_of_what_waits_so_many_have_their_turn_in_each_round() -> None:
    rounds = Rounds(*TOPICS[:50])
    for topic in rounds.due():
        rounds.idle.waits(topic, 0)
    turns = [rounds.due() for _ in range(5)]
    assert turns[3] == TOPICS[:50], "who has not used it is due in the next round too"
    assert [len(turns[0]), len(turns[1]), len(turns[2])] == [16, 32, 48]


def test_all_may_be_woken() -> None:
    rounds = Rounds(*TOPICS[:5])
    for _ in range(70):
        rounds.pass_round()
    rounds.idle.wake("t3")
    assert "t3" in rounds.pass_round()
    rounds.idle.wake_all()
    assert rounds.pass_round() == TOPICS[:5]
