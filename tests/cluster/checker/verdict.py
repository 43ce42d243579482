"""The complete verdict on a history: a pure function, so that any run can be judged again."""

from collections.abc import Iterator

from tests.cluster.checker.divergence import judge_witnesses
from tests.cluster.checker.gaps import false_alarms
from tests.cluster.checker.history import History
from tests.cluster.checker.log_verdict import judge_log
from tests.cluster.checker.reader_verdict import judge_readers

STALENESS_SECONDS = 5.0


def judge(history: History, *, staleness_seconds: float = STALENESS_SECONDS) -> list[str]:
    """Everything that is wrong, by topic; empty where nothing is.

    A page that ends with "nothing more" must have what any reader was given, and any producer told, at another
    broker `staleness_seconds` before; what the same broker has given, it must have at once.
    """
    return [complaint for topic in history.topics for complaint in _judge_topic(history, topic, staleness_seconds)]


def _judge_topic(history: History, topic: str, staleness_seconds: float) -> Iterator[str]:
    readers = [reader for reader in history.readers if reader.topic == topic]
    logs = [reader for reader in readers if reader.kind == "final" and reader.finished]
    if not logs:
        yield f"{topic}: not read: nobody read the topic from its start to its end when the load was over"
        return
    requests = [request for request in history.requests if request.topic == topic]
    for final in logs:
        for complaint in judge_log(history, topic, list(final.found), list(final.told)):
            yield f"{topic}: {final.name}: {complaint}"
    for complaint in judge_witnesses(readers, requests, history.predecessors.get(topic, {})):
        yield f"{topic}: {complaint}"
    for complaint in false_alarms(readers, history.faults):
        yield f"{topic}: {complaint}"
    # The last of them: what was on its way for long may have landed since the first.
    log = {(message.segment, message.offset): message for message in logs[-1].found}
    for complaint in judge_readers(readers, requests, log, staleness_seconds=staleness_seconds):
        yield f"{topic}: {complaint}"


def summary(history: History) -> str:
    """A short summary of the history."""
    counts = ", ".join(f"{history.count(outcome)} {outcome}" for outcome in ("acknowledged", "unknown", "failed"))
    faults = ", ".join(fault.name for fault in history.faults) or "none"
    seen = sum(1 for reader in history.readers for _ in reader.found)
    return f"messages {counts}; {len(history.readers)} readers were given {seen}; faults: {faults}"
