"""Errors in the words of commands, for programs with a command line: brokers tell HTTP users `PUT /v1/topics/…`."""

import re

_METHOD = r"(?:GET|PUT|POST|DELETE|HEAD|PATCH)"
_OLDER = "the broker does not know what this command asks for: it may be of an older version"
_RULES = tuple(
    (re.compile(pattern), text)
    for pattern, text in (
        # What to do instead.
        (
            r"create it with PUT /v1/topics/(\S+)/groups/(\S+?), or claim from it(?:, or join it)?",
            r"create it with mq group create \1 \2",
        ),
        (r'or pass "force": true', "or pass --force"),
        (
            r"send it in the header 'Authorization: Bearer TOKEN'",
            "name its file by mq --token-file or BRAIDMQ_TOKEN_FILE, or put it into BRAIDMQ_TOKEN",
        ),
        (r"\. Join it with POST /v1/topics/\S+/members", ""),
        (r"Claim messages with POST /v1/topics/(\S+)/groups/(\S+)/claims", r"Work on them with mq work \1 --group \2"),
        (r"create it with PUT /v1/topics/(\S+)", r"create it with mq topic create \1"),
        (r"create it with PUT /v1/topic-groups/(\S+)", r"create it with mq topic-group create \1"),
        (r"configure it with PUT /v1/topic-groups/(\S+?),", r"configure it with mq topic-group create \1,"),
        (r"\(PUT /v1/topic-groups/(\S+)\)", r"(mq topic-group create \1)"),
        (r"DELETE /v1/topic-groups/(\S+) deletes", r"mq topic-group delete \1 deletes"),
        (r"GET /v1/topic-groups/(\S+) names", r"mq topic-group describe \1 names"),
        (r"ask for /v1/topics/(\S+)/files", r"see mq files ls \1"),
        (r", and the request wants a new one \(If-None-Match: \*\)", ": leave out --new to change its settings"),
        (
            r"publish in several requests, or upload a large value first \(POST \S+\) and publish a reference to it",
            "publish a large file by reference, with mq publish --upload",
        ),
        (r"get an id from POST /v1/topics/(\S+)/uploads", r"publish the file with mq publish \1 --upload"),
        (rf"that {_METHOD} …/\w+ (gave|returned)", r"that the broker \1"),
        (r"the body is declared as a form.*", "the data is declared as a form, which brokers do not take"),
        (r"no such path: /.*; see /docs", _OLDER),
        (rf"/\S+ does not take {_METHOD}\b.*", _OLDER),
        (r"no path of this broker, and no query, is that long", "a name or a marker is too long"),
        (r"(the address has a character that must be percent-encoded).*", r"\1"),
        (r"; with \?key=… in the address it is the value of one message", ""),
        (
            r"BRAIDMQ_CLIENT_KEY is of no use without BRAIDMQ_CLIENT_CERT: name both files",
            "--client-key, or BRAIDMQ_CLIENT_KEY, is of no use without --client-cert or BRAIDMQ_CLIENT_CERT: name both "
            "files",
        ),
        # Where an answer came from.
        (rf" answered {_METHOD} /\S* with (.*?) and no problem document", r" answered with \1"),
        (rf" answered {_METHOD} with ", " answered with "),
        (r" answered /v1/\S* with ", " answered with "),
        (r"(https?://[^/\s]+)/v1/[^\s:]*", r"\1"),
        # Terms of HTTP.
        (r"\ban? query parameter\b", "an option"),
        (r"\bthe query is not valid\b", "the options are not valid"),
        (r"\ba key in the query\b", "a key beside the data"),
        (r"\bunknown parameter\b", "this broker has no option"),
        (r"\bparameter\b", "option"),
        (r"\b([Tt])he body\b", r"\1he data"),
        (r"\[([a-z-]+), HTTP \d{3}\]", r"[\1]"),
        (r"\bHTTP (\d{3})\b", r"status \1"),
    )
)


def in_command_words(text: str) -> str:
    """Rewrite an error of a broker, or of the client, for somebody who types commands."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text
