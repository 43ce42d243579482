"""Every value of the chart, set to nothing, to 0, to digits, to a large number or to a switch: refused, or right."""

import copy
import functools
import json
import os
import random
import re
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema_rs
import kubernetes_validate
import pytest
import yaml

from mq.base.read_settings import read_settings
from tests.integration.helm.test_chart import OF_OTHERS
from tests.support.kube.chart import CHART, NAMESPACE, Manifest, helm, one
from tests.support.thoroughness import few_or_many

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())
# Everything is on, so that each value is shown somewhere.
ON: Mapping[str, Any] = {
    "store": {"url": "s3://messages/here", "existingSecret": "store", "endpoint": "http://minio:9000"},
    "tls": {"clientCaSecret": "clients", "clientCertSecret": "shown"},
    "ingress": {"enabled": True, "host": "queue.example.org", "tlsSecret": "ingress", "className": "nginx"},
    "httpRoute": {"enabled": True, "parentRefs": [{"name": "public"}]},
    "autoscaling": {"keda": {"enabled": True, "prometheusUrl": "http://prometheus:9090"}},
    "monitoring": {
        "serviceMonitor": {"enabled": True},
        "dashboards": {"enabled": True},
        "rules": {"enabled": True},
        "metrics": "any",
    },
    "tracing": {"enabled": True, "endpoint": "http://collector:4318", "headersSecret": "headers"},
    "zookeeper": {"persistence": {"enabled": True, "storageClass": "fast"}},
    "jobs": {"pipeline": [{"name": "compact", "schedule": "30 3 * * *", "args": ["compact", "orders"]}]},
}
EXTERNAL: Mapping[str, Any] = {"zookeeper": {"external": "zk:2181", "tls": {"enabled": True, "existingSecret": "zk"}}}
OTHERS: Sequence[Any] = ("", 0, "007", 10_000_000, "on", "off", True)
# Whose names are texts, whatever they look like.
TEXTS = {"name", "secretName", "serviceAccountName", "priorityClassName", "ingressClassName", "storageClassName"}
FREE = {"resources", "labels"}
"""Below these everything is the user's."""
Path_ = tuple[str, ...]


def laid_over(values: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The values with `more` in their places, as Helm does it: None takes one away."""
    found = dict(copy.deepcopy(values))
    for name, value in more.items():
        if value is None:
            found.pop(name, None)
        elif isinstance(value, Mapping) and isinstance(found.get(name), Mapping):
            found[name] = laid_over(found[name], value)
        else:
            found[name] = value
    return found


def below(path: Path_, value: Any) -> dict[str, Any]:
    """The value at that path."""
    return {path[0]: below(path[1:], value) if path[1:] else value}


def every_value(values: Mapping[str, Any] = DEFAULTS, above: Path_ = ()) -> Iterator[Path_]:
    """Where there is a value, groups of values included."""
    for name, value in values.items():
        yield (*above, name)
        if isinstance(value, Mapping):
            yield from every_value(value, (*above, name))


SETTINGS = [("config", name) for name in SCHEMA["properties"]["config"]["properties"]]
VALUES = [*every_value(), *SETTINGS]
shown = ".".join


@functools.cache
def schema() -> Any:
    return jsonschema_rs.validator_for(SCHEMA)


def is_taken(path: Path_, value: Any) -> bool:
    """Whether the schema takes the value."""
    return bool(schema().is_valid(laid_over(laid_over(DEFAULTS, ON), below(path, value))))


def render(folder: Path, *values: Mapping[str, Any], release: str = "queue") -> "subprocess.CompletedProcess[str]":
    files = []
    for number, each in enumerate(values):
        files.append(folder / f"{number}.json")
        files[-1].write_text(json.dumps(each))
    given = [word for each in files for word in ("--values", str(each))]
    return helm("template", release, CHART, "--namespace", NAMESPACE, "--kube-version", "1.33.0", *given)


def check_right(rendered: str) -> list[Manifest]:
    """Fails unless Kubernetes takes what is rendered, pods are found, and brokers take their settings."""
    found = [each for each in yaml.safe_load_all(rendered) if each]
    for each in found:
        if each["kind"] not in OF_OTHERS:
            kubernetes_validate.validate(each, "1.33", strict=True)
        for where, value in _leaves(each):
            if each["kind"] != "Secret":
                assert not re.search(r"<nil>|\de\+\d", str(value)), (each["kind"], where, value)
            if where[-1] in TEXTS and "port" not in where:
                assert isinstance(value, str), (each["kind"], where, value)
        name = each["metadata"]["name"]
        most = {"CronJob": 52, "StatefulSet": 52, "Service": 63}.get(each["kind"], 253)
        assert re.fullmatch("[a-z0-9]([-a-z0-9.]*[a-z0-9])?", name) and len(name) <= most, (each["kind"], name)
        assert all(isinstance(value, str) for value in each["metadata"].get("labels", {}).values())
    labels = [each["spec"]["template"]["metadata"]["labels"] for each in found if "template" in each.get("spec", {})]
    for each in found:
        if each["kind"] in ("Service", "PodDisruptionBudget", "Deployment", "StatefulSet"):
            selector = each["spec"]["selector"]
            wanted = selector.get("matchLabels", selector).items()
            assert any(wanted <= of_pod.items() for of_pod in labels), (each["kind"], each["metadata"]["name"], wanted)
    (deployment,) = (each for each in found if each["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (broker,) = (each for each in pod["containers"] if each["name"] == "broker")
    given = {each["name"]: each.get("value", "pod") for each in broker["env"] if each["name"].startswith("BRAIDMQ_")}
    flags = dict(re.findall(r'--([a-z-]+) "(\S+)"', broker["command"][2]))
    file = tomllib.loads(one(found, "ConfigMap", deployment["metadata"]["name"])["data"]["braidmq.toml"])
    read_settings({each.replace("-", "_"): value for each, value in flags.items()}, given, file)
    return found


def _leaves(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _leaves(each, (*above, name))
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each, above)
    else:
        yield above, value


@pytest.mark.parametrize("path", [path for path in every_value() if not FREE & {*path[:-1]}], ids=shown)
def test_no_value_may_be_set_to_nothing(path: Path_) -> None:
    """Helm would take the default away, and a protection with it."""
    (error,) = schema().iter_errors(laid_over(DEFAULTS, below(path, None)))
    assert error.message == f'"{path[-1]}" is a required property'


def test_helm_says_which_value_was_set_to_nothing(tmp_path: Path) -> None:
    done = render(tmp_path, ON, {"networkPolicy": {"enabled": None}, "config": None})
    assert done.returncode == 1 and "nil pointer" not in done.stderr
    assert "at '/networkPolicy': missing property 'enabled'" in done.stderr
    assert "at '': missing property 'config'" in done.stderr


TAKEN = [(path, value) for path in VALUES for value in OTHERS if is_taken(path, value)]
# All workers of a run collect the same tests; the next run draws others.
SOME = sorted(
    random.Random(os.environ.get("PYTEST_XDIST_TESTRUNUID")).sample(range(len(TAKEN)), few_or_many(4, len(TAKEN)))
)


@pytest.mark.parametrize(("path", "value"), [TAKEN[each] for each in SOME], ids=str)
def test_what_the_schema_takes_is_refused_by_name_or_right(path: Path_, value: Any, tmp_path: Path) -> None:
    done = render(tmp_path, ON, below(path, value))
    if done.returncode:
        assert re.search(r"Error: execution error at \(braidmq/templates/\S+\): [^:]", done.stderr), done.stderr
    else:
        check_right(done.stdout)


@pytest.mark.parametrize("more", [{}, EXTERNAL], ids=["own", "external"])
def test_all_that_may_be_digits_or_large_is_right_together(tmp_path: Path, more: Mapping[str, Any]) -> None:
    digits = [path for path in VALUES if not _is_set(path, more) and is_taken(path, "007")]
    large = [path for path in VALUES if is_taken(path, 10_000_000)]
    values: dict[str, Any] = {}
    for path, value in [*((path, "007") for path in digits), *((path, 10_000_000) for path in large)]:
        values = laid_over(values, below(path, value))
    done = render(tmp_path, ON, more, values)
    assert done.returncode == 0, done.stderr
    found = check_right(done.stdout)
    if not more:
        budget = one(found, "PodDisruptionBudget", "queue-007-zookeeper")
        assert budget["metadata"]["labels"]["app.kubernetes.io/name"] == "007"


def _is_set(path: Path_, more: Mapping[str, Any]) -> bool:
    """What has a meaning that digits have not, or is one way of two."""
    own = (
        "fullnameOverride",
        "tls.certManager.issuerName",
        "store.existingClaim",
        "tls.existingSecret",
        "auth.oidc.audience",
    )
    quantities = ("image.tag", "tracing.ratio", "zookeeper.persistence.size")
    return shown(path) in (*own, *quantities) or path[0] in ("config", *more)


@pytest.mark.parametrize("characters", [41, 42, 43, 46, 47, 53])
def test_a_release_of_any_length_has_names_that_pods_can_have(tmp_path: Path, characters: int) -> None:
    release = ("braidmq-" + "ab-" * 20)[:characters].rstrip("-") + "x" * (characters % 3 == 1)
    done = render(tmp_path, ON, release=release[:53])
    assert done.returncode == 0, done.stderr
    check_right(done.stdout)


@pytest.mark.parametrize("release", ["0777", "1e6", "a.b"])
def test_a_release_whose_name_no_service_may_have_is_refused(tmp_path: Path, release: str) -> None:
    done = render(tmp_path, ON, {"fullnameOverride": release})
    assert f"{release} cannot be the name of a Service" in done.stderr


@pytest.mark.parametrize("name", ["on", "null", "y"])
def test_a_name_that_yaml_takes_for_a_switch_stays_a_name(tmp_path: Path, name: str) -> None:
    found = check_right(render(tmp_path, ON, {"fullnameOverride": name}).stdout)
    assert one(found, "Deployment", name)["metadata"]["name"] == name


@pytest.mark.parametrize("where", ["commonLabels", "podLabels", "zookeeper.podLabels"])
def test_labels_by_which_pods_are_found_are_not_the_users(tmp_path: Path, where: str) -> None:
    labels = {"app.kubernetes.io/component": "mine"}
    done = render(tmp_path, ON, below(tuple(where.split(".")), labels))
    assert f"{where}: pods are found by app.kubernetes.io/component, which the chart sets" in done.stderr


def test_labels_of_pods_stand_before_those_of_all_resources(tmp_path: Path) -> None:
    labels = {
        "commonLabels": {"team": "all", "a": "b"},
        "podLabels": {"team": "queue", "app.kubernetes.io/version": "7"},
    }
    found = check_right(render(tmp_path, ON, labels).stdout)
    of_pod = one(found, "Deployment", "queue-braidmq")["spec"]["template"]["metadata"]["labels"]
    assert (of_pod["team"], of_pod["a"], of_pod["app.kubernetes.io/version"]) == ("queue", "b", "7")


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ({"audit": True}, """at '/config/audit': value must be 'in quotes: "off" or "on"'"""),
        ({"log_level": "loud"}, "value must be one of 'debug', 'info', 'warning', 'error'"),
        ({"zookeeper_open": "yes"}, "at '/config/zookeeper_open': got string, want boolean"),
        ({"session_timeout": 10_000_000}, "at '/config/session_timeout': maximum: got "),
        ({"cors_origin": 7}, "at '/config/cors_origin': got number, want string"),
    ],
    ids=str,
)
def test_a_setting_that_no_broker_takes_is_refused(tmp_path: Path, setting: Mapping[str, Any], told: str) -> None:
    done = render(tmp_path, ON, {"config": setting})
    assert done.returncode == 1 and told in done.stderr, done.stderr


def test_an_admin_that_is_not_enabled_has_no_token(tmp_path: Path) -> None:
    more = {"auth": {"admin": {"enabled": False, "existingSecret": "admins"}, "tokenKeys": {"existingSecret": "keys"}}}
    found = check_right(render(tmp_path, ON, more).stdout)
    assert "static_tokens" not in one(found, "ConfigMap", "queue-braidmq")["data"]["braidmq.toml"]
    assert "admins" not in json.dumps(found)


def test_prometheus_without_a_token_is_refused(tmp_path: Path) -> None:
    more = {"auth": {"admin": {"enabled": False}, "tokenKeys": {"existingSecret": "keys"}}}
    done = render(tmp_path, ON, more, {"monitoring": {"metrics": "authorized"}})
    assert "monitoring.serviceMonitor: Prometheus would have no token" in done.stderr
    own = {"spec": {"endpoints": [{"port": "http"}]}}
    assert not render(
        tmp_path, ON, more, {"monitoring": {"metrics": "authorized"}, "patches": {"servicemonitor": own}}
    ).returncode


def test_prometheus_shows_a_certificate_where_clients_need_one(tmp_path: Path) -> None:
    found = check_right(render(tmp_path, ON).stdout)
    (endpoint,) = one(found, "ServiceMonitor", "queue-braidmq")["spec"]["endpoints"]
    assert endpoint["tlsConfig"]["cert"] == {"secret": {"name": "shown", "key": "tls.crt"}}
    assert endpoint["tlsConfig"]["keySecret"] == {"name": "shown", "key": "tls.key"}


@pytest.mark.parametrize("keys", [["ca.crt"], ["ca.crt", "tls.crt", "tls.key"]], ids=["ca", "certificate"])
def test_brokers_show_zookeeper_the_certificate_that_its_secret_has(tmp_path: Path, keys: list[str]) -> None:
    found = check_right(render(tmp_path, ON, EXTERNAL).stdout)
    pod = one(found, "Deployment", "queue-braidmq")["spec"]["template"]["spec"]
    (broker,) = (each for each in pod["containers"] if each["name"] == "broker")
    mounted = {each["name"]: each["mountPath"] for each in broker["volumeMounts"]}
    assert mounted["zookeeper-tls"] == "/etc/braidmq/zookeeper-tls"
    secret = tmp_path / "zookeeper-tls"
    secret.mkdir()
    for key in keys:
        (secret / key).touch()
    # The command of the pod, with a program that prints its arguments in the place of `mq`.
    program = tmp_path / "mq"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    script = broker["command"][2].replace("/etc/braidmq", str(tmp_path))
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "POD_IP": "10.0.0.7"}
    words = subprocess.run(
        ["sh", "-c", script, "mq", "--own"], env=environment, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    certificate = ["--zookeeper-cert", f"{secret}/tls.crt", "--zookeeper-key", f"{secret}/tls.key"]
    assert words[-1] == "--own"
    assert words[5:-1] == (certificate if len(keys) > 1 else [])
