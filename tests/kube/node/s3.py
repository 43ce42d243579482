"""The object store of these tests: the S3 server of `mq local`, in a pod behind a service."""

import socket

import boto3
from botocore.config import Config

from tests.kube.cluster.api import Api
from tests.kube.cluster.release import is_ready
from tests.kube.node.images import S3
from tests.support.process.processes import until

NAMESPACE, NAME, PORT = "storage", "s3", 9000
URL = f"http://{NAME}.{NAMESPACE}.svc:{PORT}"
BUCKET = "messages"
VALUES = (
    f"store.url=s3://{BUCKET}/here",
    f"store.endpoint={URL}",
    "store.region=us-east-1",
    "store.addressing=path",
    "store.existingSecret=s3",
)
_KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
_READY_SECONDS = 90.0


def run_s3(api: Api) -> None:
    """Start it, and make the bucket."""
    answer = api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    assert answer.is_success, answer.text
    until(lambda: api.exists(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"))
    metadata = {"name": NAME, "labels": {"app": NAME}}
    container = {
        "name": NAME,
        "image": S3,
        "ports": [{"name": "http", "containerPort": PORT}],
        "readinessProbe": {"tcpSocket": {"port": "http"}, "periodSeconds": 1},
    }
    spec = {"containers": [container], "enableServiceLinks": False}
    ports = [{"port": PORT, "targetPort": "http"}]
    for resources, wanted in (("pods", spec), ("services", {"selector": {"app": NAME}, "ports": ports})):
        answer = api.create(f"/api/v1/namespaces/{NAMESPACE}/{resources}", {"metadata": metadata, "spec": wanted})
        assert answer.is_success, answer.text
    until(lambda: is_ready(api.get(f"/api/v1/namespaces/{NAMESPACE}/pods/{NAME}")), timeout_seconds=_READY_SECONDS)
    until(_has_name)
    client = boto3.client(
        "s3",
        endpoint_url=URL,
        region_name="us-east-1",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
        config=Config(s3={"addressing_style": "path"}),
    )
    client.create_bucket(Bucket=BUCKET)


def store_secret(api: Api, namespace: str) -> None:
    """The secret that `store.existingSecret` names."""
    answer = api.create(
        f"/api/v1/namespaces/{namespace}/secrets", {"metadata": {"name": "s3"}, "stringData": dict(_KEYS)}
    )
    assert answer.is_success, answer.text


def _has_name() -> bool:
    """Whether this machine's programs find it by its name."""
    try:
        return bool(socket.getaddrinfo(f"{NAME}.{NAMESPACE}.svc", PORT))
    except OSError:
        return False
