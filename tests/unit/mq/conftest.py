import logging
from collections.abc import Iterator

import pytest

_SWITCHES = ("_srcfile", "logThreads", "logProcesses", "logMultiprocessing")


@pytest.fixture
def logging_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A broker sets logging up for its whole process. A test that has it do so leaves it to the next as it was."""
    for switch in _SWITCHES:
        monkeypatch.setattr(logging, switch, getattr(logging, switch))
    loggers = [each for each in logging.root.manager.loggerDict.values() if isinstance(each, logging.Logger)]
    levels = {each: each.level for each in (logging.root, *loggers)}
    yield
    for logger, level in levels.items():
        logger.setLevel(level)
