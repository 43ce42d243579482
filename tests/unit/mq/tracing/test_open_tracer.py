"""Whether a broker traces is decided at the start. One that does not loads nothing for it."""

import subprocess
import sys

import pytest

from mq.base.settings import BrokerSettings
from mq.base.trace_environment import is_disabled
from mq.tracing.open_tracer import open_tracer
from mq.tracing.tracer import NO_TRACER


def test_no_tracer_is_opened_unless_it_is_asked_for() -> None:
    assert open_tracer(BrokerSettings(), {}) is NO_TRACER


@pytest.mark.parametrize(("value", "disabled"), [("true", True), ("True", True), ("false", False), ("", False)])
def test_opentelemetry_as_a_whole_may_be_switched_off(value: str, disabled: bool) -> None:
    assert is_disabled({"OTEL_SDK_DISABLED": value}) is disabled
    if disabled:
        assert open_tracer(BrokerSettings(tracing="otlp"), {"OTEL_SDK_DISABLED": value}) is NO_TRACER


def test_a_broker_that_does_not_trace_imports_nothing_for_it() -> None:
    # FastAPI imports the API by itself, which does nothing.
    code = (
        "import sys\n"
        "import mq.cli.server.serve, mq.process.server, mq.http.app\n"
        "from mq.base.read_settings import read_settings\n"
        "from mq.tracing.open_tracer import open_tracer\n"
        "open_tracer(read_settings({}, {}, {}), {})\n"
        "loaded = [name for name in sys.modules if name.startswith(('opentelemetry.', 'mq.tracing.'))]\n"
        "ours = {'mq.tracing.open_tracer', 'mq.tracing.tracer'}\n"
        "assert not [name for name in loaded if name.startswith('mq.') and name not in ours], loaded\n"
        "assert not [name for name in loaded if name.split('.')[1] in ('sdk', 'exporter', 'proto')], loaded\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
