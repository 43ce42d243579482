"""The tours are read as somebody types them in, and only what differs each time may differ."""

import pytest

from tests.support.tours import STORES, aligned, set_up, steps_of


def test_commands_go_on_behind_a_backslash_and_within_quotes() -> None:
    page = "```console\n$ one \\\n  two\nprinted\n$ say '{\n}' three\n```\n```python\n# a.py\nb\n```\n```sql\nno\n```\n"
    assert [(step.kind, step.text, step.printed) for step in steps_of(page)] == [
        ("console", "one \\\n  two\n", "printed\n"),
        ("console", "say '{\n}' three\n", ""),
        ("python", "# a.py\nb\n", None),
    ]


ONE, OTHER = "01M878BGKSQA5CP5GE1XFEV81R", "01M878BH4P7C94X0MN6DDFD304"


@pytest.mark.parametrize(
    ("expected", "actual", "known"),
    [
        ("a\nb", "a\nb", {}),
        ("a\nb", "a", None),
        ("a", "a\nb", None),
        ("a\n...\nd", "a\nb\nc\nd", {}),
        ("a\n...", "a\nb", {}),
        ("count 5", "count 6", None),
        ("mq: no answer from http://a:1: retrying, 2 s so far\nb", "b", {}),
        ("b", "mq: no answer from http://a:1: retrying, 2 s so far\nb", {}),
        ("b", "mq: no answer from http://a:1\nb", None),
        ("published 2 messages in 3.5 s (1 per second)", "published 2 messages in 0.5 s", {"3.5": "0.5"}),
        ("took 1.5 s", "took 12 s", {"1.5": "12"}),
        ("a  b\n────────", "a b\n──────────", {}),
        ('{"marker":"A-b1"}', '{"marker":"C"}', {"A-b1": "C"}),
        (
            "at 2026-01-31T10:00:00Z",
            "at 2027-02-28T10:00:00.123456Z",
            {"2026-01-31T10:00:00Z": "2027-02-28T10:00:00.123456Z"},
        ),
        ("mq publish --skip 90481", "mq publish --skip 131072", {"90481": "131072"}),
        (f"broker-2.{ONE} leads", f"broker-1.{OTHER} leads", {f"broker-2.{ONE}": f"broker-1.{OTHER}"}),
        (f"broker-2.{ONE}  running  3  leads", f"broker-2.{OTHER}  running  3", {ONE: OTHER}),
        (f"broker-2.{ONE}  running  3", f"broker-1.{OTHER}  running  3", None),
    ],
)
def test_only_what_differs_each_time_may_differ(expected: str, actual: str, known: dict[str, str] | None) -> None:
    assert aligned(expected, actual) == known


@pytest.mark.parametrize("store", STORES)
def test_each_store_has_its_set_up(store: str) -> None:
    assert "BRAIDMQ_STORE" in set_up(store).text
