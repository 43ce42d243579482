"""The rules as they are, with their real times: promtool takes them, and alerts fire and go when they should."""

import inspect
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
import yaml

from tests.alerts import (
    test_cluster_alerts,
    test_data_alerts,
    test_group_alerts,
    test_process_alerts,
    test_store_alerts,
)
from tests.support.monitoring.chart_queries import RULES, alerts
from tests.support.monitoring.prometheus import program

STEP_SECONDS, BAD_STEPS, GOOD_STEPS = 15, 600, 240
"""Two and a half hours of a fault, then an hour without it: longer than the rules look."""
MODULES: tuple[ModuleType, ...] = (
    test_cluster_alerts,
    test_data_alerts,
    test_group_alerts,
    test_process_alerts,
    test_store_alerts,
)


class Fault(NamedTuple):
    """What series are while a fault lasts, and without it: for each 15 s, a value, or with `+` an increase."""

    bad: str
    good: str


STEADY, GROWS = Fault("1", "1"), Fault("+20", "+20")
OF_GROUP = 'topic="orders",group="billing"'
SERIES: Mapping[str, Mapping[str, Fault]] = {
    "BraidMQNoBrokerReady": {"braidmq_ready": Fault("0", "1")},
    "BraidMQBrokerDown": {"up": Fault("0", "1")},
    "BraidMQBrokerNotReady": {"braidmq_ready": Fault("0", "1")},
    "BraidMQTooFewBrokers": {"braidmq_brokers_wanted": Fault("3", "1"), "braidmq_ready": STEADY},
    "BraidMQNoLeader": {"braidmq_leads": Fault("0", "1")},
    "BraidMQSeveralLeaders": {"braidmq_leads": STEADY, 'braidmq_leads{instance="b"}': Fault("1", "0")},
    "BraidMQZooKeeperLost": {"braidmq_in_touch": Fault("0", "1")},
    "BraidMQZooKeeperSessionsLost": {"braidmq_lost_touch_total": Fault("+1", "+0")},
    "BraidMQSegmentsLost": {"braidmq_segments_lost_total": Fault("+1", "+0")},
    "BraidMQPublishErrors": {
        'braidmq_publishes_refused_total{reason="store-unavailable"}': Fault("+1", "+0"),
        'braidmq_publish_seconds_count{acks="stored"}': GROWS,
    },
    "BraidMQPublishSlow": {
        'braidmq_publish_seconds_bucket{acks="stored",le="0.5"}': Fault("+0", "+20"),
        'braidmq_publish_seconds_bucket{acks="stored",le="10"}': GROWS,
        'braidmq_publish_seconds_bucket{acks="stored",le="+Inf"}': GROWS,
    },
    "BraidMQFrontStoreFills": {
        "braidmq_front_store_pending_bytes": Fault("6", "4"),
        "braidmq_front_store_limit_bytes": Fault("10", "10"),
    },
    "BraidMQConnectionsRefused": {'braidmq_connections_refused_total{reason="no-room"}': Fault("+5", "+0")},
    "BraidMQStorageQuotaFills": {'braidmq_storage_quota_used_ratio{topics="orders*"}': Fault("0.95", "0.5")},
    "BraidMQStoreStalled": {"braidmq_store_stalled": Fault("2", "0")},
    "BraidMQStoreErrors": {
        'braidmq_store_calls_total{operation="create",outcome="unknown"}': Fault("+2", "+0"),
        'braidmq_store_calls_total{operation="create",outcome="ok"}': GROWS,
    },
    "BraidMQStoreThrottles": {'braidmq_store_errors_total{operation="create",cause="503"}': Fault("+20", "+0")},
    "BraidMQStoreSlow": {
        'braidmq_store_call_seconds_bucket{operation="create",le="0.5"}': Fault("+0", "+20"),
        'braidmq_store_call_seconds_bucket{operation="create",le="10"}': GROWS,
        'braidmq_store_call_seconds_bucket{operation="create",le="+Inf"}': GROWS,
    },
    "BraidMQClockDiffers": {"braidmq_store_clock_ahead_seconds": Fault("-4", "0")},
    "BraidMQDeletionPaused": {"braidmq_deletion_paused": Fault("1", "0")},
    "BraidMQDataMissing": {'braidmq_missing_objects{topic="orders",kind="missing"}': Fault("1", "0")},
    "BraidMQDamageFound": {'braidmq_scrub_findings{topic="orders",kind="damaged"}': Fault("1", "0")},
    "BraidMQRecordsUnusable": {"braidmq_unusable_records": Fault("1", "0")},
    "BraidMQTopicRepairFails": {'braidmq_topic_repair_failures_total{topic="orders"}': Fault("+1", "+0")},
    "BraidMQUpkeepFails": {"braidmq_maintenance_errors_total": Fault("+1", "+0")},
    "BraidMQScrubOverdue": {
        "braidmq_scrub_oldest_seconds": Fault("4000000", "2000000"),
        "braidmq_scrub_period_seconds": Fault("2592000", "2592000"),
    },
    "BraidMQLoadsFail": {'braidmq_load_commits_failed_total{reason="refused"}': Fault("+1", "+0")},
    "BraidMQGroupIsLate": {f"braidmq_group_lag_seconds{{{OF_GROUP}}}": Fault("400", "10")},
    "BraidMQGroupFallsBehind": {f"braidmq_group_lag_messages{{{OF_GROUP}}}": Fault("+1000", "+-1000")},
    "BraidMQGroupHasNobody": {
        f"braidmq_group_lag_messages{{{OF_GROUP}}}": GROWS,
        f"braidmq_group_members{{{OF_GROUP}}}": Fault("0", "1"),
        f"braidmq_group_in_flight_messages{{{OF_GROUP}}}": Fault("0", "0"),
    },
    "BraidMQDeadLetters": {f"braidmq_group_dead_messages_total{{{OF_GROUP}}}": Fault("+1", "+0")},
    "BraidMQDeadLettersOpen": {f"braidmq_group_open_dead_letters{{{OF_GROUP}}}": Fault("3", "0")},
    "BraidMQGroupHasLostMessages": {f"braidmq_group_skipped_messages_total{{{OF_GROUP}}}": Fault("+1", "+0")},
    "BraidMQMemoryNearLimit": {
        "process_resident_memory_bytes": Fault("95", "50"),
        "braidmq_memory_limit_bytes": Fault("100", "100"),
    },
    "BraidMQEventLoopBlocked": {"braidmq_event_loop_blocked_seconds_total": Fault("+3", "+0.1")},
    # Promtool's time begins in 1970.
    "BraidMQCertificateExpires": {
        'braidmq_certificate_expiry_timestamp_seconds{listener="clients"}': Fault("864000", "8640000")
    },
    "BraidMQAuditFails": {"braidmq_audit_failures_total": Fault("+1", "+0")},
    "BraidMQPolicyUnusable": {"braidmq_policy_failures_total": Fault("+1", "+0")},
}


def test_promtool_takes_the_rules() -> None:
    done = subprocess.run([program("promtool"), "check", "rules", str(RULES)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_is_made_to_fire_by_a_real_fault() -> None:
    marks = [
        mark
        for module in MODULES
        for _, function in inspect.getmembers(module, inspect.isfunction)
        for mark in getattr(function, "pytestmark", ())
        if mark.name == "alerts"
    ]
    assert sorted(name for mark in marks for name in mark.args) == sorted(alerts())
    assert SERIES.keys() == alerts().keys()


@pytest.mark.parametrize("name", alerts())
def test_an_alert_fires_after_its_time_and_goes(name: str, tmp_path: Path) -> None:
    """By series of the names that a broker has (tests/integration/helm/test_monitoring.py looks at those)."""
    hold_seconds = _seconds(alerts()[name].get("for", "0s"))
    bad_seconds, end_seconds = STEP_SECONDS * BAD_STEPS, STEP_SECONDS * (BAD_STEPS + GOOD_STEPS)
    times = [(bad_seconds, True), (end_seconds, False)]
    if hold_seconds:
        times.insert(0, (hold_seconds // 2, False))
    test = {
        "interval": f"{STEP_SECONDS}s",
        "input_series": [{"series": _labelled(each), "values": _values(fault)} for each, fault in SERIES[name].items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)',
                "eval_time": f"{seconds}s",
                "exp_samples": [{"value": int(fires), "labels": "{}"}],
            }
            for seconds, fires in times
        ],
    }
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "15s", "tests": [test]}))
    done = subprocess.run([program("promtool"), "test", "rules", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def _labelled(series: str) -> str:
    name, _, labels = series.partition("{")
    given = labels.rstrip("}")
    own = 'job="braidmq",instance="a"' if "instance=" not in given else 'job="braidmq"'
    return f"{name}{{{own}{',' if given else ''}{given}}}"


def _values(fault: Fault) -> str:
    if not fault.bad.startswith("+"):
        return f"{fault.bad}x{BAD_STEPS} {fault.good}x{GOOD_STEPS}"
    reached = float(fault.bad) * BAD_STEPS
    return f"0{_step(fault.bad)}x{BAD_STEPS} {reached:g}{_step(fault.good)}x{GOOD_STEPS}"


def _step(text: str) -> str:
    number = float(text.removeprefix("+"))
    return f"{number:+g}"


def _seconds(duration: str) -> int:
    return int(duration[:-1]) * {"s": 1, "m": 60, "h": 3600}[duration[-1]]
