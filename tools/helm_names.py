"""Has the schema of the chart's values say what a misspelt name was meant to be.

JSON schemas know no distance between words. So each name has a pattern of what is nearly it, and the schema of an
object's names (`propertyNames`) asks them one after the other: the first one that matches tells the right name.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_SHORT = 5
_FROM_OTHER_CHARTS: Mapping[str, str | tuple[str, ...]] = {
    "replicaCount": "replicas",
    "env": "extraEnv",
    "args": "extraArgs",
    "volumes": "extraVolumes",
    "volumeMounts": "extraVolumeMounts",
    "sidecars": "extraContainers",
    "imagePullSecrets": "image.pullSecrets",
    "bucket": "store.url",
    "s3": "store",
    "cluster": "clusterName",
    "externalZookeeper": "zookeeper.external",
    "persistence": ("store.existingClaim", "zookeeper.persistence"),
    "hpa": "autoscaling",
    "keda": "autoscaling.keda",
    "pdb": "podDisruptionBudget",
    "topologySpreadConstraints": "topologySpread",
    "gateway": "httpRoute",
    "labels": "commonLabels",
    "annotations": "commonAnnotations",
    "terminationGracePeriodSeconds": "drainSeconds",
    "serviceMonitor": "monitoring.serviceMonitor",
    "metrics": "monitoring.metrics",
    "prometheusRule": "monitoring.rules",
    "cronjobs": "jobs.pipeline",
    "securityContext": "runAsUser",
}
_OF_SETTINGS: Mapping[str, str] = {
    "store": "store.url",
    "data": "store.url",
    "s3_endpoint": "store.endpoint",
    "s3_region": "store.region",
    "s3_addressing": "store.addressing",
    "cluster": "clusterName",
    "authorizer": "auth.authorizer",
    "insecure": "tls.enabled",
    "zookeeper": "zookeeper.external",
    "zookeeper_auth": "zookeeper.auth",
    "zookeeper_tls": "zookeeper.tls",
    "tls_cert": "tls.existingSecret",
    "tls_key": "tls.existingSecret",
    "tls_client_ca": "tls.clientCaSecret",
    "peer_keys": "peerKeys",
    "token_keys": "auth.tokenKeys",
    "static_tokens": "auth.admin",
    "oidc_issuer": "auth.oidc.issuer",
    "oidc_audience": "auth.oidc.audience",
    "drain_timeout": "drainSeconds",
    "metrics": "monitoring.metrics",
    "tracing": "tracing.enabled",
    "port": "service.port",
}
"""Of a broker's own settings, those for which there is another value."""
MEANT: Mapping[str, Mapping[str, str | tuple[str, ...]]] = {"": _FROM_OTHER_CHARTS, "config": _OF_SETTINGS}
"""What is meant by a name in the object at a path, where that is no misspelling. Several may be."""


def with_names(schema: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """The schema, where every object of known names tells those that are meant by others."""
    made = dict(schema)
    if "properties" in schema:
        made["properties"] = {
            name: with_names(below, f"{path}.{name}".lstrip(".")) for name, below in schema["properties"].items()
        }
        if schema.get("additionalProperties") is False and schema["properties"]:
            made["propertyNames"] = _names(path, list(schema["properties"]))
    if isinstance(schema.get("items"), dict):
        made["items"] = with_names(schema["items"], f"{path}[]")
    return made


def nearly(name: str) -> str:
    """A pattern of the words that come from a name by an edit or two at one place, and of itself.

    Regular expressions of Go and of JavaScript are the same as far as it goes.
    """
    return f"^({'|'.join(dict.fromkeys(_variants(name)))})$"


def _variants(name: str) -> Iterator[str]:
    if len(name) < _SHORT:
        # Two signs are half of it.
        for at in range(len(name)):
            yield re.escape(name[:at]) + ".?" + re.escape(name[at + 1 :])
            yield re.escape(name[:at]) + "." + re.escape(name[at:])
            yield re.escape(name[:at] + name[at : at + 2][::-1] + name[at + 2 :])
        yield re.escape(name) + "."
        return
    for at in range(len(name) - 1):
        yield re.escape(name[:at]) + ".{0,3}" + re.escape(name[at + 2 :])


def _names(path: str, names: Sequence[str]) -> dict[str, Any]:
    """The schema of names: one that is known, or else the error names what was meant, or all that there are."""
    whole = {name: f"{path}.{name}".lstrip(".") for name in names}
    tried: list[tuple[dict[str, Any], str | tuple[str, ...]]] = [
        ({"const": other}, right) for other, right in MEANT.get(path, {}).items() if other not in whole
    ]
    tried += [({"pattern": nearly(name)}, right) for name, right in whole.items()]
    otherwise: dict[str, Any] = {"enum": list(whole.values())}
    for condition, right in reversed(tried):
        meant = {"const": right} if isinstance(right, str) else {"enum": list(right)}
        otherwise = {"if": condition, "then": meant, "else": otherwise}
    return {"if": {"enum": list(names)}, "then": True, "else": otherwise}
