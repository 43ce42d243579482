"""The examples with curl that publish say what they send: curl itself calls it a form, which brokers refuse."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_CALL = re.compile(r"^(.*\bcurl\b(?:[^\n]*\\\n)*[^\n]*)\n([^\n]*)", re.MULTILINE)
_BODY = re.compile(r" (?:-d|--data(?:-\w+)?)[ =]")


def publishes_as_form(text: str) -> list[str]:
    """The calls of curl with a form as the body of a publish, but for those that show how it is refused."""
    found = []
    for call, answer in _CALL.findall(text):
        is_typed = "content-type" in call.lower() or "--json" in call
        if re.search(r"/messages\b", call) and _BODY.search(call) and not is_typed and '"type":"urn:' not in answer:
            found.append(call)
    return found


@pytest.mark.parametrize("page", PAGES, ids=[str(each.relative_to(ROOT)) for each in PAGES])
def test_no_example_publishes_a_form(page: Path) -> None:
    assert publishes_as_form(page.read_text("utf-8")) == []


def test_a_form_is_found() -> None:
    assert publishes_as_form("see `curl 'http://a/v1/topics/t/messages?key=k' -d 'x'`\nand so on\n")
    assert publishes_as_form("$ curl http://a/v1/topics/t/messages \\\n  --data-binary @file\n{}\n")
    assert not publishes_as_form("$ curl http://a/v1/topics/t/messages -H 'Content-Type: text/plain' -d x\n{}\n")
    assert not publishes_as_form('$ curl http://a/v1/topics/t/messages -d x\n{"type":"urn:braidmq:wrong"}\n')
