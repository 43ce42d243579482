"""The chart's page has every value of values.yaml, with what the comment says. `make helm-docs` writes it."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from tests.support.kube.chart import CHART

_KEY = re.compile(r"( *)(\w+):( .*)?")
_COMMENT = re.compile(r" *# (-- )?(.*)")
_ROW = re.compile(r"\| (\S+) \| (\w+) \| `(.*)` \| (.*) \|")
PAGE = (CHART / "README.md").read_text("utf-8")
TEMPLATE = (CHART / "README.md.gotmpl").read_text("utf-8")
FIRST_LINE = "{{- /* README.md is made of this and of values.yaml: make helm-docs */ -}}\n"
TABLE = '{{ template "chart.valuesTable" . }}\n'


def described(text: str) -> Mapping[str, str]:
    """The values with a comment `# -- …` right above them, by their paths."""
    found: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    words: list[str] = []
    for line in text.splitlines():
        if comment := _COMMENT.fullmatch(line):
            words = [comment[2]] if comment[1] else [*words, comment[2]] if words else []
        elif key := _KEY.fullmatch(line):
            above = [*(each for each in above if each[0] < len(key[1])), (len(key[1]), key[2])]
            if words:
                found[".".join(name for _, name in above)] = " ".join(words)
            words = []
        else:
            words = []
    return found


def leaves(value: Any, whole: Mapping[str, str], path: str = "") -> Iterator[tuple[str, Any]]:
    """Each value that has no others below it, or that is described as a whole."""
    if isinstance(value, dict) and value and path not in whole:
        for name, below in value.items():
            yield from leaves(below, whole, f"{path}.{name}".lstrip("."))
    else:
        yield path, value


def test_every_value_is_described_and_no_other() -> None:
    text = (CHART / "values.yaml").read_text("utf-8")
    comments = described(text)
    values = dict(leaves(yaml.safe_load(text), comments))
    assert comments.keys() == values.keys(), comments.keys() ^ values.keys()
    assert all(each.endswith((".", ":")) or each[-1] in "}])…" for each in comments.values())
    told = {path: (json.loads(default), words) for path, _, default, words in _ROW.findall(PAGE)}
    assert told == {path: (value, comments[path]) for path, value in values.items()}, "make helm-docs"
    assert list(told) == list(values), "in the order of values.yaml"


def test_the_page_is_made_of_its_template() -> None:
    before, _, after = TEMPLATE.removeprefix(FIRST_LINE).partition(TABLE)
    head, _, table = PAGE.partition("| Key | Type | Default | Description |\n")
    assert TEMPLATE.startswith(FIRST_LINE) and head == before, "make helm-docs"
    assert not after and all(line.startswith("|") for line in table.splitlines() if line)
