"""The chart: Helm and Kubernetes take it, it refuses what is wrong by name, and what it installs is safe."""

import functools
import hashlib
import json
import operator
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from mq.base.read_settings import read_settings
from tests.support.kube.chart import CASES, CHART, GIVEN, ROOT, Manifest, helm, manifests, one, pods, rendered
from tests.support.kube.pod import expanded
from tools.helm_names import MEANT, nearly

by_case = pytest.mark.parametrize("values", CASES, ids=[each.stem.removesuffix("-values") for each in CASES])
# Of others' projects: Kubernetes itself does not know them.
OF_OTHERS = {"Certificate", "HTTPRoute", "PrometheusRule", "ScaledObject", "ServiceMonitor"}
# What is drawn at random where Helm cannot look.
DRAWN = re.compile(r"-----BEGIN[^-]*-----[^-]*-----END[^-]*-----|braidmq_\w{43}|[0-9a-f]{64}|key-\w{12}|braidmq:\w{48}")


@by_case
def test_helm_finds_no_fault(values: Path) -> None:
    done = helm("lint", CHART, "--strict", "--values", values)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("kube_version", ["1.29", "1.33", "1.37"])
def test_kubernetes_takes_it(kube_version: str) -> None:
    found = [each for values in CASES for each in manifests(values=values, kube_version=f"{kube_version}.0")]
    distinct = {json.dumps(each, sort_keys=True): each for each in found if each["kind"] not in OF_OTHERS}
    for each in distinct.values():
        kubernetes_validate.validate(each, kube_version, strict=True)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("replica=2", "additional properties 'replica' not allowed"),
        ("store.ulr=s3://b", "at '/store': additional properties 'ulr' not allowed"),
        ("config.front_store_byte=1GiB", "at '/config': additional properties 'front_store_byte' not allowed"),
        ("config.store=s3://b/p", "at '/config': additional properties 'store' not allowed"),
        ("patches.deploymnt.spec=null", "at '/patches': additional properties 'deploymnt' not allowed"),
        ("replicas=two", "at '/replicas': got string, want integer"),
        ("replicas=0", "at '/replicas': minimum: got 0, want 1"),
        ("image.tag=latest", "at '/image/tag'"),
        ("image.digest=abc", "at '/image/digest'"),
        ("store.url=messages", "at '/store/url'"),
        ("zookeeper.replicas=2", "value must be one of 1, 3, 5"),
        ("zookeeper.external=zk", "at '/zookeeper/external'"),
        ("auth.authorizer=token", "value must be one of 'tokens', 'any'"),
        ("auth.oidc.issuer=http://id.example.org", "at '/auth/oidc/issuer'"),
        ("jobs.pipeline[0].name=x", "missing properties 'schedule', 'args'"),
        ("store.existingClaim=messages", "store.url has to be file:///store/FOLDER beside store.existingClaim"),
        ("store.url=file:///store/messages", "store.existingClaim has to be given beside file:///store/messages"),
        (
            "store.url=file:///shared/messages,extraVolumeMounts[0].mountPath=/share,extraVolumeMounts[0].name=own",
            "store.existingClaim has to be given beside file:///shared/messages",
        ),
        ("config.front_store_bytes=1Gi", "value must be 'a size such as 256MiB or 1GiB'"),
        ("config.read_bytes=512M", "value must be 'a size such as 256MiB or 1GiB'"),
        ("persistence.enabled=true", "value must be one of 'store.existingClaim', 'zookeeper.persistence'"),
        ("store.url=", "store.url has to be given, such as --set store.url=s3://bucket/prefix"),
        ("auth.admin.enabled=false", "auth: nobody could have a token"),
        ("tls.clientCaSecret=ca", "tls.clientCertSecret has to be given beside tls.clientCaSecret"),
        ("ingress.enabled=true", "ingress.host has to be given"),
        ("httpRoute.enabled=true", "httpRoute.parentRefs has to name a gateway"),
        ("zookeeper.tls.enabled=true", "zookeeper.tls is for zookeeper.external"),
        ("autoscaling.keda.enabled=true", "autoscaling.keda.prometheusUrl has to be given"),
        ("autoscaling.minReplicas=30", "autoscaling.minReplicas is more than autoscaling.maxReplicas"),
        ("tls.existingSecret=a,tls.certManager.issuerName=b", "both bring the certificate"),
    ],
)
def test_what_is_wrong_is_refused_by_name(given: str, words: str) -> None:
    done = rendered(given=(*GIVEN, given))
    assert done.returncode == 1 and words in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("given", "wrong", "right"),
    [
        ("store.ulr=s3://b", "'ulr'", "'store.url'"),
        ("replica=2", "'replica'", "'replicas'"),
        ("replicaCount=2", "'replicaCount'", "'replicas'"),
        ("podLables.a=b", "'podLables'", "'podLabels'"),
        ("tls.enable=true", "'enable'", "'tls.enabled'"),
        ("tls.existing_secret=x", "'existing_secret'", "'tls.existingSecret'"),
        ("zookeeper.image.tga=3", "'tga'", "'zookeeper.image.tag'"),
        ("config.front_store_byte=1GiB", "'front_store_byte'", "'config.front_store_bytes'"),
        ("config.store=s3://b/p", "'store'", "'store.url'"),
        ("config.drain_timeout=9", "'drain_timeout'", "'drainSeconds'"),
        ("patches.deploymnt.spec=null", "'deploymnt'", "'patches.deployment'"),
        ("jobs.pipeline[0].nmae=x", "'nmae'", "'jobs.pipeline[].name'"),
        ("service.xyz=1", "'xyz'", "one of 'service.type', 'service.port', 'service.annotations'"),
    ],
)
def test_a_misspelt_value_is_told_what_it_was_meant_to_be(given: str, wrong: str, right: str) -> None:
    done = rendered(given=(*GIVEN, given))
    assert done.returncode == 1
    assert re.search(rf"invalid propertyName {wrong}\n *- at '': value must be {re.escape(right)}\n", done.stderr), (
        done.stderr
    )


@pytest.mark.parametrize("size", ["1GiB", "512MB", "1048576", "1.5GiB", "64 MiB"])
def test_sizes_as_brokers_take_them_are_taken(size: str) -> None:
    assert rendered(given=(*GIVEN, f"config.front_store_bytes={size}")).returncode == 0


@pytest.mark.parametrize(
    "place", ["extraVolumeMounts[0]", "patches.deployment.spec.template.spec.containers[0].volumeMounts[0]"]
)
@pytest.mark.parametrize("mounted", ["/shared", "/shared/", "/shared/messages"])
def test_a_store_of_files_may_be_on_a_volume_of_ones_own(place: str, mounted: str) -> None:
    given = ("store.url=file:///shared/messages", f"{place}.name=own", f"{place}.mountPath={mounted}")
    done = rendered(given=given)
    assert done.returncode == 0, done.stderr


def test_every_name_that_is_meant_is_one_of_the_values() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for path, meant in MEANT.items():
        for other, right in meant.items():
            for each in (right,) if isinstance(right, str) else right:
                functools.reduce(operator.getitem, each.split("."), values)
            assert other not in (values[path] if path else values), other


@pytest.mark.parametrize(
    ("name", "misspelt"),
    [("url", "urls ulr ur uri curl"), ("replicas", "replica repilcas replicass Replicas"), ("tag", "tga tags")],
)
def test_what_is_nearly_a_name(name: str, misspelt: str) -> None:
    pattern = re.compile(nearly(name))
    assert [each for each in misspelt.split() if not pattern.search(each)] == []
    assert not any(pattern.search(each) for each in ("image", "region", "store", "u", "persistence"))


def test_the_schema_is_that_of_the_values_and_the_settings() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.helm_schema", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@by_case
def test_every_pod_is_one_that_a_restricted_namespace_takes(values: Path) -> None:
    for name, pod in pods(manifests(values=values)):
        of_pod = pod["securityContext"]
        assert of_pod["runAsNonRoot"] and of_pod["runAsUser"] > 0, name
        assert of_pod["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["automountServiceAccountToken"] is False and pod["enableServiceLinks"] is False, name
        assert not any("hostPath" in each for each in pod["volumes"]), name
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False and security["readOnlyRootFilesystem"], name
            assert security["capabilities"] == {"drop": ["ALL"]}, name
            assert container["resources"]["limits"]["memory"] and container["resources"]["requests"]["cpu"], name
            assert not container["image"].endswith(":latest") and ":" in container["image"], name


@by_case
def test_commands_arrive_as_they_are_written(values: Path) -> None:
    """Kubernetes puts variables in for `$(NAME)`, and `$` for `$$`, before a shell sees them."""
    for name, pod in pods(manifests(values=values)):
        for container in pod["containers"]:
            variables = {each["name"]: "its value" for each in container.get("env", ())}
            for word in (*container["command"], *container.get("args", ())):
                assert expanded(word, variables) == word, name


@by_case
def test_brokers_take_the_settings(values: Path) -> None:
    """All of them, as a broker reads them: flags, the variables of the pod, the file."""
    found = manifests(values=values)
    (deployment,) = (each for each in found if each["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (broker,) = (each for each in pod["containers"] if each["name"] == "broker")
    flags = dict(re.findall(r'--([a-z-]+) "(\S+)"', broker["command"][2]))
    given = {each["name"]: each.get("value", "pod") for each in broker["env"] if each["name"].startswith("BRAIDMQ_")}
    file = tomllib.loads(one(found, "ConfigMap", deployment["metadata"]["name"])["data"]["braidmq.toml"])
    settings = read_settings({each.replace("-", "_"): value for each, value in flags.items()}, given, file)
    mounted = {each["mountPath"] for each in broker["volumeMounts"]}
    files = [value for name, value in settings if isinstance(value, Path) and name != "data"]
    assert {str(each.parent) for each in files} <= mounted
    assert settings.drain_timeout + 20 <= pod["terminationGracePeriodSeconds"]
    assert [settings.port, settings.peer_port] == [each["containerPort"] for each in broker["ports"]]


def test_what_is_installed_by_default_asks_who_one_is_and_hides_what_is_sent() -> None:
    found = manifests(given=GIVEN)
    settings = one(found, "ConfigMap", "queue-braidmq")["data"]["braidmq.toml"]
    assert 'authorizer = "tokens"' in settings and "tls_cert" in settings and "insecure" not in settings
    token = one(found, "Secret", "queue-braidmq-admin")["stringData"]
    assert hashlib.sha256(token["token"].encode()).hexdigest() in token["static-tokens.toml"]
    assert not any(each["kind"] in ("Role", "ClusterRole", "RoleBinding", "Ingress") for each in found)
    policies = {each["metadata"]["name"]: each["spec"] for each in found if each["kind"] == "NetworkPolicy"}
    (everybody, of_brokers), (of_clients, _) = (each["ingress"] for each in policies.values())
    assert "from" not in everybody and everybody["ports"] == [{"port": "http"}]
    for each in (of_brokers, of_clients):
        (source,) = each["from"]
        assert source["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "broker"


def test_brokers_are_replaced_without_being_missed() -> None:
    spec = one(manifests(given=GIVEN), "Deployment", "queue-braidmq")["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    changed = one(manifests(given=(*GIVEN, "config.grace=2h")), "Deployment", "queue-braidmq")["spec"]
    checksums = [each["template"]["metadata"]["annotations"]["checksum/config"] for each in (spec, changed)]
    assert checksums[0] != checksums[1], "a change of settings rolls the brokers"
    more = one(manifests(given=(*GIVEN, "replicas=5")), "Deployment", "queue-braidmq")["spec"]
    assert more["template"]["metadata"]["annotations"]["checksum/config"] == checksums[0], "and nothing else does"


def test_a_volume_of_messages_is_where_brokers_and_jobs_and_the_test_look() -> None:
    found = manifests(values=CHART / "ci" / "claim-values.yaml")
    reached = {name for name, pod in pods(found) if _mounts(pod) == {"store": "/store"}}
    assert reached == {"Deployment queue-braidmq", "CronJob queue-braidmq-compact-orders", "Pod queue-braidmq-test"}


def _mounts(pod: Manifest) -> dict[str, str]:
    """Of a pod's claims where they are mounted."""
    claims = {each["name"] for each in pod["volumes"] if "persistentVolumeClaim" in each}
    (container,) = pod["containers"]
    return {each["name"]: each["mountPath"] for each in container["volumeMounts"] if each["name"] in claims}


def test_a_patch_changes_any_resource() -> None:
    names = sorted(set(re.findall(r'"name" "(\w+)" "component"', "".join(_templates()))))
    schema = (CHART / "values.schema.json").read_text()
    for name in names:
        assert f'"{name}": {{\n     "type": "object"' in schema, f"patches.{name} is not in the schema"
    found = manifests(given=(*GIVEN, *(f"patches.{each}.metadata.labels.patched=yes" for each in names)))
    assert all(each["metadata"]["labels"]["patched"] == "yes" for each in found)
    assert all(each["metadata"]["namespace"] == "messages" for each in found)


def test_the_change_log_says_what_changed() -> None:
    """Whoever changes what is installed says so: the newest entry has the digest of what all cases render to."""
    digest = hashlib.sha256("\n".join(map(_masked, CASES)).encode()).hexdigest()[:16]
    log = (CHART / "CHANGELOG.md").read_text()
    told = re.findall(r"<!-- renders to (\w+) -->", log)[0]
    assert told == digest, f"say what changes for users in the chart's CHANGELOG.md, as <!-- renders to {digest} -->"


def _masked(values: Path) -> str:
    return DRAWN.sub("...", rendered(values=values).stdout)


def _templates() -> Iterator[str]:
    for each in (CHART / "templates").rglob("*.yaml"):
        yield each.read_text()
