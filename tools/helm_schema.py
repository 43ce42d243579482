"""Generate the schema of the chart's values, `helm/braidmq/values.schema.json`, from `values.yaml` and the
settings of brokers.

    python -m tools.helm_schema            # write it
    python -m tools.helm_schema --check    # exit with 1 if the file is not what this program makes

Every value has to be there: Helm takes one away that is set to nothing, in silence. The types follow from the defaults.
What more there is to say of a value is in the tables below. A name that is not in `values.yaml`, or is no setting, is
refused. `tests/integration/helm/test_chart.py` compares the file.
"""

import argparse
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic.fields import FieldInfo

from mq.base.settings import DURATION, SIZE, BrokerSettings
from tools.helm_names import with_names

CHART = Path(__file__).resolve().parent.parent / "helm" / "braidmq"
TARGET = CHART / "values.schema.json"

_PULL = ["Always", "IfNotPresent", "Never"]
_KEYWORDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


def _inside(annotation: Any) -> tuple[Any, ...]:
    """The types of a union, or the only one."""
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _metadata(field: FieldInfo) -> list[Any]:
    """What is said of a setting beside its type: of an optional one within its type."""
    found = list(field.metadata)
    for kind in _inside(field.annotation):
        for each in getattr(kind, "__metadata__", ()):
            found += each.metadata if isinstance(each, FieldInfo) else [each]
    return found


def _limits_of(field: FieldInfo) -> dict[str, Any]:
    """The limits of a setting that is a number."""
    return {
        keyword: getattr(each, name)
        for each in _metadata(field)
        for name, keyword in _KEYWORDS.items()
        if getattr(each, name, None) is not None
    }


def _limits(name: str) -> dict[str, Any]:
    return _limits_of(BrokerSettings.model_fields[name])


_SPREAD = ["DoNotSchedule", "ScheduleAnyway"]
_ENUMS: Mapping[str, list[Any]] = {
    "image.pullPolicy": _PULL,
    "zookeeper.image.pullPolicy": _PULL,
    "jobs.image.pullPolicy": _PULL,
    "store.addressing": ["auto", "path", "virtual"],
    "auth.authorizer": ["tokens", "any"],
    "tls.certManager.issuerKind": ["Issuer", "ClusterIssuer"],
    "zookeeper.replicas": [1, 3, 5],
    "service.type": ["ClusterIP", "NodePort", "LoadBalancer"],
    "topologySpread.zones": _SPREAD,
    "topologySpread.nodes": _SPREAD,
    "monitoring.metrics": ["authorized", "any"],
}
_DIGEST = "^(sha256:[0-9a-f]{64})?$"
_PATTERNS: Mapping[str, str] = {
    "image.digest": _DIGEST,
    "zookeeper.image.digest": _DIGEST,
    "jobs.image.digest": _DIGEST,
    "zookeeper.image.tag": ".+",
    "store.url": "^((s3|file)://\\S+)?$",
    "store.endpoint": "^(https?://\\S+)?$",
    "auth.oidc.issuer": "^(https://\\S+)?$",
    "autoscaling.keda.prometheusUrl": "^(https?://\\S+)?$",
    "monitoring.rules.runbookUrl": "^(https?://\\S+)?$",
    "tracing.endpoint": "^(https?://\\S+)?$",
    "tracing.ratio": "^(0(\\.[0-9]+)?|1(\\.0+)?)$",
    "zookeeper.external": "^([^\\s,:/]+:[0-9]+(,[^\\s,:/]+:[0-9]+)*)?$",
}
_PORT = 65_535
_MAXIMA: Mapping[str, int] = {"service.port": _PORT, "drainSeconds": int(_limits("drain_timeout")["maximum"])}
_MINIMA: Mapping[str, int] = {"autoscaling.scaleDownSeconds": 0, "podDisruptionBudget.maxUnavailable": 0}
_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_SELECTED = {
    "alertLabels",
    *("labels", "annotations", "commonLabels", "commonAnnotations", "podLabels", "podAnnotations", "nodeSelector"),
}
"""Kubernetes' own: names with texts."""
_QUANTITY = {
    "type": ["string", "number"],
    "pattern": "^[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?$",
}
_FREE: Mapping[str, Any] = {
    "affinity": {"type": "object"},
    "resources": {
        "type": "object",
        "properties": {name: {"type": "object", "additionalProperties": _QUANTITY} for name in ("limits", "requests")},
    },
}
"""Kubernetes' own: it has a schema itself."""
_SETTINGS_OF_TEXT = {"cors_origin": {"pattern": r"^(\*|https?://[^\s,]+(,https?://[^\s,]+)*)$"}}
_ITEMS_THAT_ARE_TEXTS = {"image.pullSecrets", "tls.names", "extraArgs", "httpRoute.hostnames"}
_JOB = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "schedule", "args"],
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", "maxLength": 15},
        "schedule": {"type": "string"},
        "args": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "resources": _FREE["resources"],
    },
}
_ALERT = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "enabled": {"type": "boolean"},
        "threshold": {"type": ["number", "string"], "minimum": 0, "pattern": "^[0-9]+(\\.[0-9]+)?$"},
        "for": {"type": "string", "pattern": "^([0-9]+(ms|[smhdwy]))+$"},
        "labels": _TEXTS,
    },
}
_PATCHED = (
    *("admin", "certificate", "config", "cronjob", "deployment", "hpa", "httproute", "ingress", "networkpolicy", "pdb"),
    *(
        "dashboard",
        "peerKeys",
        "peerTls",
        "peers",
        "prometheusrule",
        "scaledobject",
        "service",
        "serviceaccount",
        "servicemonitor",
        "test",
        "tls",
        "zookeeper",
    ),
    *("zookeeperAuth", "zookeeperConfig", "zookeeperNetworkpolicy", "zookeeperPdb", "zookeeperService"),
)
_GIVEN_BY_THE_CHART = {
    *("data", "store", "host", "port", "cluster", "broker", "zone", "advertise", "authorizer", "insecure", "metrics"),
    *("zookeeper", "zookeeper_auth", "zookeeper_tls", "zookeeper_ca", "zookeeper_cert", "zookeeper_key"),
    *("tls_cert", "tls_key", "tls_client_ca", "tls_ca", "peer_keys", "token_keys", "static_tokens", "oidc_issuer"),
    *("peer_host", "peer_port", "peer_advertise", "peer_tls_cert", "peer_tls_key", "peer_tls_ca"),
    *(
        "oidc_audience",
        "tracing",
        "drain_timeout",
        "log_format",
        "s3_endpoint",
        "s3_region",
        "s3_addressing",
        "allowed_hosts",
    ),
}
"""Settings that other values stand for, or that make no sense in a pod."""


_NUMBER = r"[0-9]{1,20}(\.[0-9]{1,20})?"


def _text_of(pattern: str, what: str) -> dict[str, Any]:
    return {"if": {"type": "string", "not": {"pattern": pattern}}, "then": {"const": what}}


_QUANTITIES: Mapping[Any, dict[str, Any]] = {
    # Not as Kubernetes writes a size.
    SIZE: _text_of(rf"^{_NUMBER} ?([bB]|[kKmMgGtT][iI]?[bB])$", "a size such as 256MiB or 1GiB"),
    DURATION: _text_of(rf"^({_NUMBER}([mM][sS]|[sSmMhHdDwW]) ?)+$", "a duration such as 10s or 1h30m"),
}
"""Numbers with units, which are texts. One without a unit is a number, which has limits."""
_NAMES = "propertyNames"


def alerts() -> list[str]:
    """The names of the alerts."""
    groups = yaml.safe_load((CHART / "rules" / "braidmq.yaml").read_text())["groups"]
    return [rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule]


def schema() -> dict[str, Any]:
    """The schema, as JSON has it."""
    made = _of(yaml.safe_load((CHART / "values.yaml").read_text()), "")
    properties = made["properties"]
    properties["config"] = _closed(
        {
            name: {"description": field.description} | _kind(name, field)
            for name, field in sorted(BrokerSettings.model_fields.items())
            if name not in _GIVEN_BY_THE_CHART
        },
        required=False,
    )
    properties["patches"] = _closed({name: {"type": "object"} for name in _PATCHED}, required=False)
    properties["jobs"]["properties"]["pipeline"]["items"] = _JOB
    properties["monitoring"]["properties"]["rules"]["properties"]["alerts"] = _closed(
        dict.fromkeys(alerts(), _ALERT), required=False
    )
    # Helm's own, where the chart is part of another one.
    properties["global"] = {"type": "object"}
    return {"$schema": "http://json-schema.org/draft-07/schema#", **with_names(made)}


def _kind(name: str, field: FieldInfo) -> dict[str, Any]:
    """What a setting may be, as the broker takes it: it would not start with anything else."""
    kinds = [each for each in _inside(field.annotation) if each is not NoneType]
    if choices := [str(value) for kind in kinds if get_origin(kind) is Literal for value in get_args(kind)]:
        return _choice(choices)
    if kinds == [bool]:
        return {"type": "boolean"}
    if _base(kinds[0]) is str:
        return {"type": "string"} | _SETTINGS_OF_TEXT.get(name, {})
    metadata = _metadata(field)
    quantities = [each.func for each in metadata if getattr(each, "func", None) in _QUANTITIES]
    if not quantities:
        return {"type": "number", **_limits_of(field)}
    return {"type": ["string", "number"], **_limits_of(field), **_QUANTITIES[quantities[0]]}


def _base(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _choice(values: list[str]) -> dict[str, Any]:
    """One of those words. YAML takes `on` and `off` for true and false unless they are in quotes."""
    if not {"on", "off"} & set(values):
        return {"enum": values}
    words = " or ".join(f'"{value}"' for value in values)
    return {"if": {"type": "boolean"}, "then": {"const": f"in quotes: {words}"}, "else": {"enum": values}}


def _of(value: Any, path: str) -> dict[str, Any]:
    """What the value at `path` may be, by what it is without being set."""
    name = path.rpartition(".")[2]
    if path in _ENUMS:
        return {"enum": _ENUMS[path]}
    if name in _SELECTED:
        return _TEXTS
    if name in _FREE:
        return dict(_FREE[name])
    match value:
        case dict():
            return _closed({each: _of(below, f"{path}.{each}".lstrip(".")) for each, below in value.items()})
        case list():
            return {"type": "array", "items": {"type": "string" if path in _ITEMS_THAT_ARE_TEXTS else "object"}}
        case bool():
            return {"type": "boolean"}
        case int():
            bounds = {"minimum": _MINIMA.get(path, 1)} | ({"maximum": _MAXIMA[path]} if path in _MAXIMA else {})
            return {"type": "integer", **bounds}
        case _ if name == "tag":
            # What moves under one's feet is no version.
            return {"type": "string", "not": {"const": "latest"}, "pattern": _PATTERNS.get(path, "")}
        case _:
            return {"type": "string"} | ({"pattern": _PATTERNS[path]} if path in _PATTERNS else {})


def _closed(properties: Mapping[str, Any], *, required: bool = True) -> dict[str, Any]:
    closed = {"type": "object", "additionalProperties": False, "properties": dict(properties)}
    return closed | ({"required": list(properties)} if required else {})


def to_text(value: Mapping[str, Any]) -> str:
    """The schema as the file has it: a line for each part, but a single one for what is asked of an object's names."""
    made: list[str] = []

    def with_marks(part: Any) -> Any:
        if not isinstance(part, dict):
            return part
        found = {name: with_marks(below) for name, below in part.items() if name != _NAMES}
        if _NAMES in part:
            made.append(json.dumps(part[_NAMES]))
            found[_NAMES] = f"{_NAMES} {len(made) - 1}"
        return found

    text = json.dumps(with_marks(value), indent=1) + "\n"
    return re.sub(rf'"{_NAMES} (\d+)"', lambda mark: made[int(mark[1])], text)


def main() -> None:
    """Exits with 1 if the file differs and is only to be checked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the file differs")
    text = to_text(schema())
    if not parser.parse_args().check:
        TARGET.write_text(text)
    elif TARGET.read_text() != text:
        sys.exit(f"{TARGET.name} is not what values.yaml and the settings make: python -m tools.helm_schema")


if __name__ == "__main__":
    main()
