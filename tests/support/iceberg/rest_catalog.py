"""A catalogue of Iceberg tables that speaks REST: the few calls that an export makes, over a catalogue in SQLite."""

import json
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pyiceberg.catalog.rest import CreateTableRequest, TableResponse
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import CommitTableRequest, Table

from tests.support.net.threaded_server import ThreadedServer


class RestCatalogServer(ThreadedServer):
    """Serves the catalogue in `folder` at `url`. With a `token`, to requests that bear it."""

    def __init__(self, folder: Path, *, token: str | None = None) -> None:
        self.catalog = SqlCatalog("played", uri=f"sqlite:///{folder}/rest.db")
        self.asked: list[str] = []
        server, lock = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer()

            def do_POST(self) -> None:
                self._answer()

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                server.asked.append(f"{self.command} {self.path}")
                with lock:
                    if token is not None and self.headers.get("Authorization") != f"Bearer {token}":
                        status, answer = 401, _problem("NotAuthorizedException", "who are you?")
                    else:
                        status, answer = server.answer(self.command, self.path.partition("?")[0], body)
                text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: Any) -> None: ...

        super().__init__(Handler)
        self.url = f"http://127.0.0.1:{self.port}"

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        """The status and the body of an answer."""
        try:
            match method, path.strip("/").split("/")[1:]:
                case "GET", ["config"]:
                    return 200, {"defaults": {}, "overrides": {}}
                case "POST", ["namespaces"]:
                    self.catalog.create_namespace_if_not_exists(tuple(json.loads(body)["namespace"]))
                    return 200, {"namespace": json.loads(body)["namespace"], "properties": {}}
                case "GET", ["namespaces", name]:
                    return 200, {"namespace": [name], "properties": self.catalog.load_namespace_properties(name)}
                case "POST", ["namespaces", name, "tables"]:
                    return 200, self._create(name, CreateTableRequest.model_validate_json(body))
                case "GET", ["namespaces", name, "tables", table]:
                    return 200, _loaded(self.catalog.load_table((name, table)))
                case "POST", ["namespaces", name, "tables", table]:
                    return 200, self._commit((name, table), CommitTableRequest.model_validate_json(body))
        except (NoSuchTableError, NoSuchNamespaceError) as error:
            return 404, _problem(type(error).__name__, str(error))
        except (CommitFailedException, TableAlreadyExistsError) as error:
            return 409, _problem(type(error).__name__, str(error))
        return 400, _problem("BadRequestException", f"{method} {path} is not played")

    def _create(self, namespace: str, asked: CreateTableRequest) -> bytes:
        create = self.catalog._create_staged_table if asked.stage_create else self.catalog.create_table
        given: dict[str, Any] = {"location": asked.location, "properties": asked.properties}
        if asked.partition_spec is not None:
            given["partition_spec"] = asked.partition_spec
        return _loaded(create((namespace, asked.name), asked.table_schema, **given))

    def _commit(self, name: tuple[str, str], asked: CommitTableRequest) -> bytes:
        table: Any = SimpleNamespace(name=lambda: name)
        return self.catalog.commit_table(table, asked.requirements, asked.updates).model_dump_json().encode()


def _loaded(table: Table) -> bytes:
    answer = TableResponse(metadata_location=table.metadata_location, metadata=table.metadata, config={})
    return answer.model_dump_json(by_alias=True).encode()


def _problem(kind: str, message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": 0}}
