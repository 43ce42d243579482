import json
import shlex
from pathlib import Path

import pytest

from mq.base.listening_sign import url_told
from mq.base.settings import BrokerSettings
from mq.cli.server.start_message import start_line, start_message
from mq.process.server import Serving


def test_it_names_the_address_and_the_store_and_commands_to_paste() -> None:
    text = start_message(Serving("http://127.0.0.1:8080", "file:///data/x%20y", BrokerSettings()))
    assert text.splitlines()[0].endswith("listening on http://127.0.0.1:8080")
    assert text.splitlines()[1] == "Storing in /data/x y"
    commands = [line.strip() for line in text.splitlines() if line.startswith("  ")]
    assert [shlex.split(command)[0] for command in commands] == ["curl", "curl", "curl", "curl", "duckdb"]
    query = shlex.split(commands[-1])[2]
    assert "'/data/x y/topics/demo/segments/*/*.parquet'" in query


@pytest.mark.parametrize("folder", ["a'b", 'a"b', "a$b", "a`b", "a\\b", "a!b"])
def test_a_strange_directory_is_quoted_for_sql_and_for_the_shell(folder: str) -> None:
    text = start_message(Serving("http://127.0.0.1:8080", f"file:///{folder}", BrokerSettings()))
    query = shlex.split(next(line for line in text.splitlines() if "duckdb" in line))[2]
    assert f"'/{folder.replace(chr(39), chr(39) * 2)}/topics" in query


def test_an_object_store_is_named_as_duckdb_takes_it() -> None:
    text = start_message(
        Serving("http://127.0.0.1:8080", "s3://bucket/prefix", BrokerSettings(store="s3://bucket/prefix"))
    )
    assert "Storing in s3://bucket/prefix\n" in text and "'s3://bucket/prefix/topics/demo/segments/" in text


def test_commands_have_a_place_for_the_token_that_the_broker_asks_for() -> None:
    asking = BrokerSettings(authorizer="tokens", token_keys=Path("keys.json"))
    text = start_message(Serving("http://127.0.0.1:1", "file:///x", asking))
    curls = [shlex.split(line) for line in text.splitlines() if line.startswith("  curl")]
    assert text.endswith("/docs, with a token\n")
    assert len(curls) == 4 and all(each[1:3] == ["-H", "Authorization: Bearer TOKEN"] for each in curls)


def test_it_warns_where_nobody_outside_is_served() -> None:
    open_to_all = BrokerSettings(host="0.0.0.0", authorizer="any")
    assert "--authorizer any" in start_message(
        Serving("http://127.0.0.1:1", "file:///x", BrokerSettings(host="0.0.0.0"))
    )
    assert "--authorizer any" not in start_message(Serving("http://127.0.0.1:1", "file:///x", open_to_all))


def test_among_lines_of_json_it_is_one() -> None:
    settings = BrokerSettings(host="0.0.0.0", log_format="json")
    text = start_line(Serving("http://10.1.2.3:8080", "file:///data/x%20y", settings), 1_700_000_000_000_000)
    assert text.count("\n") == 1
    line = json.loads(text)
    assert line["time"] == "2023-11-14T22:13:20.000000Z" and line["level"] == "info" and line["warnings"]
    assert (line["event"], line["url"], line["store"]) == ("listening", "http://10.1.2.3:8080", "/data/x y")


def test_the_address_is_found_in_either() -> None:
    serving = Serving("http://127.0.0.1:8080", "file:///x", BrokerSettings())
    for text in (start_message(serving), start_line(serving, 0)):
        assert url_told(text.splitlines()[0]) == "http://127.0.0.1:8080"
    assert url_told('{"event":"broker_started","url":"http://other","note":"listening"}') is None
