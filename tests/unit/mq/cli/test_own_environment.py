"""What `mq` sets for its own libraries stays its own."""

import os

import pytest

from mq.cli import own_environment
from mq.cli.own_environment import given_environment, set_own_variables


def test_commands_of_users_get_only_what_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_environment, "_set", [])
    monkeypatch.setenv("PYDANTIC_DISABLE_PLUGINS", "given")
    # So that it is taken away again, whoever sets it.
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    monkeypatch.setenv("MINE", "\udcff")
    before = dict(os.environb)
    set_own_variables()
    assert (os.environ["PYDANTIC_DISABLE_PLUGINS"], os.environ["OPENBLAS_NUM_THREADS"]) == ("given", "1")
    assert given_environment() == before
