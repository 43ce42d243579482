"""SIGTERM and SIGINT: the first one asks the process to stop, a second one ends it at once."""

import asyncio
import signal

from filer.event_log import EventLog

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_log = EventLog(__name__)


class StopSignals:
    """Sets the event `asked` of the running loop at the first stop signal."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            self._loop.add_signal_handler(number, self._first, number)

    def _first(self, number: signal.Signals) -> None:
        # The kernel handles the second one, so that it works even if the event loop hangs.
        for each in _SIGNALS:
            self._loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)
        # A second signal ends the process at once.
        _log.info("stop_asked", signal=signal.Signals(number).name)
        self.asked.set()
