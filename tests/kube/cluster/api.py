"""Asks the API server, as an administrator with `curl` would."""

import ssl
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import yaml

Resource = Mapping[str, Any]
_TIMEOUT_SECONDS = 30.0
_APPLY = {"Content-Type": "application/apply-patch+yaml"}


class Api:
    """The API server of a kubeconfig. Paths are as in `/api/v1/namespaces/x/pods`."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        context.load_cert_chain(user["client-certificate"], user["client-key"])
        self._http = httpx.Client(base_url=cluster["server"], verify=context, timeout=_TIMEOUT_SECONDS, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._http.close()

    def is_ready(self) -> bool:
        """Whether it answers, and has all that it needs."""
        try:
            return self._http.get("/readyz").is_success
        except httpx.TransportError:
            return False

    def get(self, path: str, **parameters: str) -> Any:
        """Raises `httpx.HTTPStatusError` unless it is there."""
        return self._http.get(path, params=parameters).raise_for_status().json()

    def exists(self, path: str) -> bool:
        """Whether it is there."""
        return self._http.get(path).status_code != httpx.codes.NOT_FOUND

    def answers(self, path: str) -> bool:
        """Whether it answers without an error."""
        return self._http.get(path).is_success

    def items(self, path: str, **parameters: str) -> list[Resource]:
        """What a list has."""
        found: list[Resource] = self.get(path, **parameters)["items"]
        return found

    def create(self, path: str, resource: Resource) -> httpx.Response:
        """The answer, whatever it is."""
        return self._http.post(path, json=resource)

    def apply(self, path: str, resource: Resource) -> None:
        """As `kubectl apply --server-side` does."""
        answer = self._http.patch(
            path, params={"fieldManager": "tests", "force": "true"}, content=yaml.safe_dump(resource), headers=_APPLY
        )
        assert answer.is_success, answer.text

    def merge(self, path: str, change: Mapping[str, Any]) -> None:
        """Change some fields."""
        answer = self._http.patch(path, json=change, headers={"Content-Type": "application/merge-patch+json"})
        assert answer.is_success, answer.text

    def delete(self, path: str, **parameters: str) -> None:
        """Have it deleted, which may take longer than this."""
        self._http.delete(path, params=parameters).raise_for_status()
