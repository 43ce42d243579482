"""`braidmq` exports the same names to types and to programs, and imports modules when their names are used."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import braidmq

SOURCE = Path(braidmq.__file__).read_text("utf-8")


def names_for_types() -> dict[str, str]:
    """The module of each name that is imported where only types count."""
    block = next(node for node in ast.parse(SOURCE).body if isinstance(node, ast.If))
    return {
        alias.name: str(node.module) for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }


def test_types_and_programs_see_the_same_names() -> None:
    assert names_for_types() == braidmq._MODULE_OF
    assert sorted(braidmq.__all__) == sorted(braidmq._MODULE_OF)
    assert set(braidmq.__all__) <= set(dir(braidmq))


@pytest.mark.parametrize("name", braidmq.__all__)
def test_each_name_is_what_its_module_has(name: str) -> None:
    assert getattr(braidmq, name) is getattr(import_module(braidmq._MODULE_OF[name]), name)


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="module 'braidmq' has no attribute 'Clint'"):
        _ = braidmq.Clint
    assert braidmq.errors.Refused is braidmq.Refused


def test_calls_without_messages_need_no_arrow() -> None:
    script = (
        "import sys; from braidmq import AsyncClient, BraidMQError; AsyncClient(); assert 'pyarrow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
