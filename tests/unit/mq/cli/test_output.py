import pytest

from mq.cli.output import print_json, print_table, shown, size


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "yes"),
        (False, "no"),
        (1234567, "1,234,567"),
        (1234.56, "1,234.6"),
        ("a", "a"),
        ("\x1b[31m\n", "\\x1b[31m\\n"),
    ],
)
def test_values_as_people_read_them(value: object, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1.5 * 2**20, "1.5 MiB"), (2**50, "1024.0 TiB")],
)
def test_sizes(size_bytes: float, text: str) -> None:
    assert size(size_bytes) == text


def test_a_table_in_a_pipe_is_plain_and_whole(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 500
    print_table(("name", "count"), [("[red]a[/red]", 5), (long, 1234)])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert [line.split() for line in out.splitlines()] == [
        ["name", "count"],
        ["─" * len(out.splitlines()[1])],
        ["[red]a[/red]", "5"],
        [long, "1,234"],
    ]


def test_json_is_one_line(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    print_json({"a": [1, "ä"]})
    assert capsysbinary.readouterr().out == '{"a":[1,"ä"]}\n'.encode()
