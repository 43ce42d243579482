"""The message that `mq serve` prints once it takes requests: its address, and commands ready to paste."""

import shlex
from urllib.parse import unquote, urlsplit

import orjson

from filer import keys
from filer.times import rfc3339
from mq.base.exposure import is_this_machine
from mq.base.listening_sign import EVENT, SIGN
from mq.base.settings import BrokerSettings
from mq.base.version import VERSION
from mq.machine_users.kernel_users import TELLS_USERS
from mq.process.server import Serving

_TOPIC = "demo"


def start_message(serving: Serving) -> str:
    """The message. Its first line ends in the address of the broker."""
    messages = f"{serving.url}/v1/topics/{_TOPIC}/messages"
    curl = _curl(serving.settings)
    lines = [
        f"BraidMQ {VERSION} {SIGN}{serving.url}",
        *([] if serving.peer_url is None else [f"Brokers call it at {serving.peer_url}"]),
        f"Storing in {_path(serving.store)}",
        *_warnings(serving),
        "",
        "Create a topic:",
        f"  {curl} -X PUT {serving.url}/v1/topics/{_TOPIC} -d '{{}}'",
        "Publish:",
        f"  {curl} '{messages}?key=tree' --json '\"an apple falls\"'",
        "Read:",
        f"  {curl} {messages}",
        "Watch messages arrive:",
        f"  {curl} -N {serving.url}/v1/topics/{_TOPIC}/subscribe",
        "Query the files:",
        f"  duckdb -c {_query(serving)}",
        f"More at {serving.url}/docs{', with a token' if serving.settings.authorizer == 'tokens' else ''}",
        "",
    ]
    return "\n".join(lines)


def start_line(serving: Serving, time_us: int) -> str:
    """The part of the message that a program can use, as a line of JSON like those of the log."""
    line = {
        "time": rfc3339(time_us),
        "level": "info",
        "logger": __name__,
        "event": EVENT,
        "version": VERSION,
        "url": serving.url,
        "peer_url": serving.peer_url,
        "store": _path(serving.store),
        "warnings": _warnings(serving),
    }
    return f"{orjson.dumps(line).decode()}\n"


def _curl(settings: BrokerSettings) -> str:
    """The call of curl: it must trust the broker, and may have to show a certificate or a token."""
    ca = (
        "" if settings.tls_cert is None or settings.tls_ca is None else f" --cacert {shlex.quote(str(settings.tls_ca))}"
    )
    who = "" if settings.tls_client_ca is None else " --cert CERTIFICATE --key KEY"
    token = ' -H "Authorization: Bearer TOKEN"' if settings.authorizer == "tokens" else ""
    return f"curl{ca}{who}{token}"


def _warnings(serving: Serving) -> list[str]:
    settings, warnings = serving.settings, []
    if settings.trusts_this_machine and not settings.takes_tokens and not is_this_machine(settings.host):
        warnings.append(
            "Only requests from this machine are served. With --authorizer any, everybody who can connect is served."
        )
    if settings.authorizer == "user" and not TELLS_USERS:
        warnings.append("Every user of this machine is served: its system does not tell whose a connection is.")
    return warnings


def _query(serving: Serving) -> str:
    glob = f"{_path(serving.store)}/{keys.segments_folder(_TOPIC)}*/*.parquet"
    # DISTINCT: for a while both a rolled-up file and the files that it replaces exist.
    sql = (
        "SELECT DISTINCT ON (segment, _offset) segment, _offset, decode(key) AS key, decode(value) AS value "
        f"FROM '{glob.replace(chr(39), chr(39) * 2)}' ORDER BY segment, _offset"
    )
    # Double quotes read better, if the shell changes nothing between them.
    return shlex.quote(sql) if any(each in sql for each in '"$`\\!') else f'"{sql}"'


def _path(uri: str) -> str:
    """A directory as a plain path; other addresses unchanged."""
    if uri.startswith("file://"):
        return unquote(urlsplit(uri).path).rstrip("/")
    return uri.rstrip("/")
