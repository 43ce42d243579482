"""Errors as command lines report them. Brokers phrase the remedy of an error for HTTP, and name it too."""

from collections.abc import Iterator, Mapping

from braidmq.errors import BraidMQError, Problem, text_of
from filer.errors import RemedyKind

COMMANDS: Mapping[RemedyKind, str] = {
    "claim": ". Work on them with mq work {topic} --group {group}",
    "configure-its-topic-group": ": configure the group (mq topic-group create {topic_group}), or use another name",
    "configure-topic": ": leave out --new to change its settings",
    "configure-topic-group": ": configure it with mq topic-group create {topic_group}, which takes the same settings",
    "create-group": ": create it with mq group create {topic} {group}",
    "create-topic": ": create it with mq topic create {topic}",
    "create-topic-group": ": create it with mq topic-group create {topic_group}",
    "create-splittable-to-split": (
        ": only a group that is created with --splittable, whose order is by key, can be split"
    ),
    "create-splittable-with-segments": (
        "; with --splittable at its creation its order is by key, and it may have several"
    ),
    "create-with-topics": ": a topic group is created with its topics: mq topic-group create NAME TOPIC …",
    "delete-topic-group": ": mq topic-group delete {topic_group} deletes the group with all its topics",
    "discard": "; discard it with mq group redrive --id {message} --discard",
    "force-consumers": "; or pass --force, and what they have is handed out again",
    "force-members": "; or pass --force, and they go on from there",
    "get-upload-id": ": publish the file with mq publish {topic} --upload",
    "give-upload-id": ", the id of an upload to the topic",
    "join": "",
    "publish-and-discard": (
        "; publish it to that topic yourself, and discard it with mq group redrive --id {message} --discard"
    ),
    "publish-to-member": ": publish to one of its topics, which mq topic-group describe {topic_group} names",
    "read-files-of-topic-group": ": see mq files ls {topic_group}, and take the rows WHERE _topic = '{topic}'",
    "send-token": ": name its file by mq --token-file or BRAIDMQ_TOKEN_FILE, or put it into BRAIDMQ_TOKEN",
    "upload": ": publish a large file by reference, with mq publish --upload",
}
"""The text after the fault that the broker reports, for each kind of remedy."""
_NO_SUCH_REQUEST = frozenset(("not-found", "method-not-allowed"))
_OLDER = "the broker does not know what this command asks for: it may be of an older version"


def in_commands(error: BaseException) -> str:
    """A command line's report of an error: the remedy is a command."""
    text = str(error)
    for problem in _problems(error):
        text = text.replace(text_of(problem), _in_commands(problem))
    return text


def _problems(error: BaseException | None) -> Iterator[Problem]:
    """The problem documents of which the text of an error may be made."""
    while error is not None:
        if isinstance(error, BraidMQError):
            for each in (error, *error.tried_before.values()):
                if each.problem is not None:
                    yield each.problem
        error = error.__cause__


def _in_commands(problem: Problem) -> str:
    text = _OLDER if problem.slug in _NO_SUCH_REQUEST else _with_remedy(problem)
    return f"{text} [{problem.slug}]"


def _with_remedy(problem: Problem) -> str:
    """The fault and the remedy; the detail, if the broker is older and names no remedy, or names a newer one."""
    plain = problem.detail or problem.title
    remedy = problem.extras.get("remedy")
    if not isinstance(remedy, dict):
        return plain
    try:
        return f"{remedy['fault']}{COMMANDS[remedy['kind']].format(**remedy)}"
    except (KeyError, TypeError):
        return plain
