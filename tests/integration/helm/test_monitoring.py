"""What the chart has for Prometheus and Grafana names what a broker tells, and each alert has its page."""

import hashlib
import re
import subprocess
import sys
import time

import httpx
import pytest

from tests.support.broker.broker_process import BrokerProcess
from tests.support.kube.chart import GIVEN, NAMESPACE, manifests, one, rendered
from tests.support.monitoring.chart_queries import (
    PAGES,
    ROOT,
    Panel,
    alerts,
    dashboards,
    groups,
    page,
    page_commands,
    page_queries,
    panels,
    recorded,
    rules,
)
from tests.support.monitoring.exposition import Series, series_of
from tests.support.monitoring.promql import Query
from tests.support.net.authority import Authority

TOKEN = "braidmq_a-token-of-tests"
LAGS_SECONDS = 60
POLICY = {"quotas": [{"principal": "admin", "storage_bytes": 1_000_000, "storage_topics": "birds*"}]}
BY_ALERT = pytest.mark.parametrize("name", alerts())
BY_PANEL = pytest.mark.parametrize("panel", list(panels()), ids=str)
PLACEHOLDER = re.compile(r"\{\{\s*\$labels\.(\w+)\s*\}\}")
LEGEND = re.compile(r"\{\{(\w+)\}\}")
ENABLED = tuple(f"monitoring.{each}.enabled=true" for each in ("rules", "dashboards"))
SELECTOR = f'namespace="{NAMESPACE}",job="queue-braidmq"'


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Series:
    """All series of a broker with TLS, tokens, a quota, and a group of each kind."""
    folder = tmp_path_factory.mktemp("told")
    authority = Authority(folder)
    broker = authority.sign("broker")
    tokens = folder / "tokens.toml"
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    tokens.write_text(f'[[token]]\nname = "admin"\nsha256 = "{digest}"\ngrants = ["topic:*:*", "cluster:*"]\n')
    arguments = [
        "--tls-cert",
        broker.cert,
        "--tls-key",
        broker.key,
        "--authorizer",
        "tokens",
        "--static-tokens",
        tokens,
    ]
    process = BrokerProcess(data=folder / "data", args=list(map(str, arguments)), tls=authority.client())
    bearer = {"authorization": f"Bearer {TOKEN}"}
    with process, httpx.Client(base_url=process.url, verify=authority.client(), headers=bearer, timeout=30) as client:
        _use(client)
        return _all_series(client)


def _use(client: httpx.Client) -> None:
    policy = client.get("/v1/cluster/policy").raise_for_status()
    client.put("/v1/cluster/policy", json=POLICY, headers={"if-match": policy.headers["etag"]}).raise_for_status()
    client.put("/v1/topics/birds").raise_for_status()
    client.put("/v1/topic-groups/shop", json={"topics": ["orders"]}).raise_for_status()
    for topic in ("birds", "orders"):
        client.put(f"/v1/topics/{topic}/groups/billing").raise_for_status()
        client.post(f"/v1/topics/{topic}/messages", json={"messages": [{"key": "k", "value": 1}]}).raise_for_status()


def _all_series(client: httpx.Client) -> Series:
    """Once there are those of groups and of storage, which are measured now and then."""
    deadline = time.monotonic() + LAGS_SECONDS
    while True:
        found = series_of(client.get("/metrics").raise_for_status().text)
        if {"braidmq_group_lag_is_at_most", "braidmq_storage_quota_used_ratio"} <= found.keys():
            return found
        assert time.monotonic() < deadline, "no lag was measured, or no storage"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def series(told: Series) -> Series:
    """Those of brokers, and those that recording rules make of them."""
    known = dict(told)
    for name, rule in recorded().items():
        known[name] = Query(rule["expr"]).recorded(known)
    return known


@pytest.mark.parametrize("name", recorded())
def test_what_is_recorded_is_told(name: str, series: Series) -> None:
    query = Query(recorded()[name]["expr"])
    assert list(query.problems(series)) == [] and query.selected
    # As names of recording rules are made: level, metric, operation.
    level, metric, _ = name.split(":")
    assert set(level.split("_")) == query.labels(series)
    assert metric.startswith("braidmq_publishes") or all(each.name.startswith(metric) for each in query.selected)


@BY_ALERT
def test_an_alert_goes_by_what_is_told(name: str, series: Series) -> None:
    rule = alerts()[name]
    query = Query(rule["expr"])
    assert list(query.problems(series)) == [] and query.selected
    assert all(each.values.get("job") == {"braidmq"} for each in query.selected), "one cluster's series alone"
    assert re.search(r"[<>] [0-9.]+\Z", rule["expr"]), "the threshold is at the end"
    assert rule["labels"]["severity"] in ("critical", "warning")
    texts = " ".join(rule["annotations"].values())
    assert set(PLACEHOLDER.findall(texts)) <= query.labels(series)
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}


@BY_ALERT
def test_an_alert_has_its_page(name: str, series: Series) -> None:
    assert (ROOT / alerts()[name]["annotations"]["runbook_url"]) == PAGES / f"{name}.md"
    text = page(name)
    assert text.startswith(f"# {name}\n") and "**What users notice.**" in text
    assert text.index("\n## Look\n") < text.index("\n## Do\n")
    assert page_commands(name) or page_queries(name)
    for each in page_queries(name):
        assert list(Query(each).problems(series)) == []


def test_each_page_is_of_an_alert_and_in_the_list() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} == {*alerts(), "README"}
    rows = re.findall(r"^\| \[(\w+)\]\((\w+)\.md\) \| (\w+) \|", (PAGES / "README.md").read_text(), re.MULTILINE)
    assert rows == [(name, name, rule["labels"]["severity"]) for name, rule in alerts().items()]


@BY_PANEL
def test_a_panel_shows_what_is_told(panel: Panel, series: Series) -> None:
    variables = {each["name"] for each in dashboards()[panel.dashboard]["templating"]["list"]} | {"__rate_interval"}
    assert panel.queries
    for text, legend in panel.queries:
        assert set(re.findall(r"\$(\w+)", text)) <= variables
        for each in Query(text).selected:
            for label, values in each.values.items():
                if any("$" in value for value in values):
                    assert values == {f"${label}"}
        query = Query(re.sub(r"\$\w+_price", "1", text.replace("[$__rate_interval]", "[1m]")))
        assert list(query.problems(series)) == []
        assert set(LEGEND.findall(legend)) <= query.labels(series)


@pytest.mark.parametrize("name", dashboards())
def test_a_dashboard_can_be_laid_out(name: str, series: Series) -> None:
    dashboard = dashboards()[name]
    assert dashboard["uid"] == f"braidmq-{name}"
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken and max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.fullmatch(r"label_values\((\w+)\S*, (\w+)\)", variable["definition"]).groups()
            assert label in (*series[metric], "namespace", "job", "instance"), variable["name"]


def test_the_dashboards_are_those_of_the_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.dashboards", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_the_chart_has_the_rules_of_the_plain_file() -> None:
    found = one(manifests(given=(*GIVEN, *ENABLED)), "PrometheusRule", "queue-braidmq")["spec"]["groups"]
    assert [group["name"] for group in found] == [group["name"] for group in groups()]
    for rule, plain in zip((rule for group in found for rule in group["rules"]), rules(), strict=True):
        assert rule["expr"] == plain["expr"].replace('job="braidmq"', SELECTOR)
        for part in ("record", "alert", "for", "annotations"):
            assert rule.get(part) == plain.get(part)
        if "alert" in plain:
            assert rule["labels"] == {**plain["labels"], "namespace": NAMESPACE}


def test_values_change_alerts() -> None:
    of_rules = "monitoring.rules"
    given = (
        f"{of_rules}.runbookUrl=https://pages.example.org/braidmq/",
        f"{of_rules}.labels.release=prometheus,{of_rules}.alertLabels.team=queues",
        f"{of_rules}.alerts.BraidMQNoLeader.enabled=false",
        f"{of_rules}.alerts.BraidMQPublishSlow.threshold=0.75,{of_rules}.alerts.BraidMQPublishSlow.for=90s",
        f"{of_rules}.alerts.BraidMQPublishSlow.labels.severity=critical",
        f"{of_rules}.extraGroups[0].name=mine",
    )
    made = one(manifests(given=(*GIVEN, *ENABLED, *given)), "PrometheusRule", "queue-braidmq")
    assert made["metadata"]["labels"]["release"] == "prometheus"
    found = {rule.get("alert"): rule for group in made["spec"]["groups"] for rule in group.get("rules", ())}
    assert alerts().keys() - found.keys() == {"BraidMQNoLeader"}
    slow, plain = found["BraidMQPublishSlow"], alerts()["BraidMQPublishSlow"]
    assert slow["expr"].endswith("} > 0.75") and plain["expr"].endswith("} > 3")
    assert slow["for"] == "90s"
    assert slow["labels"] == {"severity": "critical", "team": "queues", "namespace": NAMESPACE}
    assert slow["annotations"]["runbook_url"] == "https://pages.example.org/braidmq/BraidMQPublishSlow.md"
    assert made["spec"]["groups"][-1] == {"name": "mine"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            "monitoring.rules.alerts.BraidMQNoLaeder.enabled=false",
            "additional properties 'BraidMQNoLaeder' not allowed",
        ),
        ("monitoring.rules.alerts.BraidMQNoLeader.fro=1m", "additional properties 'fro' not allowed"),
        ("monitoring.rules.alerts.BraidMQNoLeader.for=soon", "BraidMQNoLeader/for"),
        ("monitoring.rules.alerts.BraidMQNoLeader.threshold=many", "BraidMQNoLeader/threshold"),
        ("monitoring.rules.runbookUrl=docs", "at '/monitoring/rules/runbookUrl'"),
        ("tracing.enabled=true", "tracing.endpoint has to be given"),
        ("tracing.endpoint=collector:4317", "at '/tracing/endpoint'"),
        ("tracing.ratio=1%", "at '/tracing/ratio'"),
    ],
)
def test_what_is_wrong_is_refused_by_name(given: str, words: str) -> None:
    done = rendered(given=(*GIVEN, given))
    assert done.returncode == 1 and words in done.stderr, done.stderr


def test_dashboards_are_config_maps_that_the_sidecar_finds() -> None:
    more = ("monitoring.dashboards.annotations.grafana_folder=Queues",)
    found = [each for each in manifests(given=(*GIVEN, *ENABLED, *more)) if "-dashboard-" in each["metadata"]["name"]]
    assert len(found) == len(dashboards()) == 5
    for each in found:
        assert each["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert each["metadata"]["annotations"] == {"grafana_folder": "Queues"}
        ((name, text),) = each["data"].items()
        path = ROOT / "helm/braidmq/dashboards" / name.removeprefix("braidmq-")
        assert text == path.read_text()


def test_traces_are_switched_on_by_values() -> None:
    more = ("tracing.enabled=true", "tracing.endpoint=http://collector:4318", "tracing.headersSecret=collector")
    found = manifests(given=(*GIVEN, *more))
    assert 'tracing = "otlp"' in one(found, "ConfigMap", "queue-braidmq")["data"]["braidmq.toml"]
    (broker,) = one(found, "Deployment", "queue-braidmq")["spec"]["template"]["spec"]["containers"]
    told = {each["name"]: each for each in broker["env"] if each["name"].startswith("OTEL_")}
    assert told["OTEL_EXPORTER_OTLP_ENDPOINT"]["value"] == "http://collector:4318"
    assert told["OTEL_TRACES_SAMPLER_ARG"]["value"] == "0.01"
    assert told["OTEL_EXPORTER_OTLP_HEADERS"]["valueFrom"] == {"secretKeyRef": {"name": "collector", "key": "headers"}}
    assert "OTEL" not in rendered(given=GIVEN).stdout
