"""A stand-in for a schema registry: the part of Confluent's REST API that the gateway uses, over real HTTP.

It is written from Confluent's documentation (Schema Registry API reference: schemas, subjects), and no
registry itself: of compatibility it knows three rules of BACKWARD (a member keeps its type, a new one has a
default, a union may have more branches).
`tests/integration/kafka/test_schema_registry.py` asks a real one the same.
"""

from __future__ import annotations

import io
import json
import ssl
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fastavro

Answer = tuple[int, bytes]

UNKNOWN: Answer = (404, b'{"error_code":40403,"message":"Schema not found"}')
NO_SUBJECT: Answer = (404, b'{"error_code":40401,"message":"Subject not found"}')
NO_VERSION: Answer = (404, b'{"error_code":40402,"message":"Version not found"}')
NO_PATH: Answer = (404, b'{"error_code":404,"message":"HTTP 404 Not Found"}')


class RegistryServer:
    """Knows schemas by their ids. answers: by path, instead of what it knows. requests: the paths so far.

    gate: while it is cleared nothing is answered. trouble: what everyone is answered, if set. user: user and
    password, if it asks for them. subjects: the ids of their versions, from the first on, as they are
    registered by POST. texts: of these schemas. says_version: whether it answers with the version what is
    registered, as newer ones do.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.answers: dict[str, Answer | Callable[[Handler], None]] = {}
        self.requests: list[str] = []
        self.subjects: dict[str, list[int]] = {}
        self.texts: dict[int, str] = {}
        self.says_version = False
        self.asked = threading.Event()
        self.gate = threading.Event()
        self.gate.set()
        self.trouble: Answer | None = None
        self.user: tuple[str, str] | None = None
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()
        self._tls = tls
        self._port = 0
        self._server: _Server | None = None
        self.up()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://localhost:{self._port}"

    def add(self, schema_id: int, schema: Any, **more: Any) -> None:
        document = {"schema": schema if isinstance(schema, str) else json.dumps(schema), **more}
        self.answers[f"/schemas/ids/{schema_id}"] = 200, json.dumps(document).encode()

    def add_subject(self, subject: str, version: int, schema: Any, **more: Any) -> None:
        document = {"subject": subject, "version": version, "schema": json.dumps(schema), **more}
        self.answers[f"/subjects/{subject}/versions/{version}"] = 200, json.dumps(document).encode()

    def up(self) -> None:
        """Listen (again, on the same port)."""
        self._server = _Server(("127.0.0.1", self._port), Handler)
        self._server.owner = self
        self._port = self._server.server_port
        if self._tls is not None:
            self._server.socket = self._tls.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    def down(self) -> None:
        """Do not listen any more: connections are refused."""
        server, self._server = self._server, None
        self.gate.set()
        if server is not None:
            server.shutdown()
            server.server_close()

    def answer(self, handler: Handler) -> None:
        with self._lock:
            self.requests.append(handler.path)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        self.asked.set()
        self.gate.wait(30)
        with self._lock:
            self._at_once -= 1
        found: Answer | Callable[[Handler], None]
        found = self.trouble or self._refused(handler) or self._found(handler)
        if callable(found):
            found(handler)
        else:
            handler.write(*found)

    def _refused(self, handler: Handler) -> Answer | None:
        given = handler.headers.get("Authorization")
        if self.user is None or given == f"Basic {b64encode(':'.join(self.user).encode()).decode()}":
            return None
        return 401, b'{"error_code":401,"message":"Unauthorized"}'

    def _found(self, handler: Handler) -> Answer | Callable[[Handler], None]:
        if handler.command == "GET":
            return self.answers.get(handler.path) or self._version(handler.path)
        subject, _, rest = handler.path.removeprefix("/subjects/").partition("/")
        if handler.headers["Content-Type"] != "application/vnd.schemaregistry.v1+json":
            return 415, b'{"error_code":415,"message":"HTTP 415 Unsupported Media Type"}'
        text = json.loads(handler.body)["schema"]
        with self._lock:
            return self._look_up(subject, text) if not rest else self._register(subject, text)

    def _version(self, path: str) -> Answer:
        subject, _, version = path.removeprefix("/subjects/").partition("/versions/")
        if not version:
            return UNKNOWN
        if subject not in self.subjects:
            return NO_SUBJECT
        ids = self.subjects[subject]
        if not 0 < int(version) <= len(ids):
            return NO_VERSION
        return self._said(subject, ids[int(version) - 1])

    def _look_up(self, subject: str, text: str) -> Answer:
        if subject not in self.subjects:
            return NO_SUBJECT
        same = [
            known for known in self.subjects[subject] if json.loads(self.texts[known]) == json.loads(text)
        ]
        return self._said(subject, same[0]) if same else UNKNOWN

    def _register(self, subject: str, text: str) -> Answer:
        try:
            schema = json.loads(text)
            fastavro.parse_schema(schema)
        except (ValueError, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType):
            return 422, b'{"error_code":42201,"message":"Invalid schema"}'
        ids = self.subjects.setdefault(subject, [])
        found = [known for known, other in self.texts.items() if json.loads(other) == schema]
        if not found or found[0] not in ids:
            if ids and not _can_read(schema, json.loads(self.texts[ids[-1]])):
                words = (
                    f'Schema being registered is incompatible with an earlier schema for subject "{subject}"'
                )
                return 409, json.dumps({"error_code": 409, "message": words}).encode()
            new = found[0] if found else len(self.texts) + 101
            self.texts[new] = text
            self.add(new, text)
            ids.append(new)
            found = [new]
        said = {"id": found[0]} | ({"version": ids.index(found[0]) + 1} if self.says_version else {})
        return 200, json.dumps(said).encode()

    def _said(self, subject: str, schema_id: int) -> Answer:
        version = self.subjects[subject].index(schema_id) + 1
        text = self.texts[schema_id]
        said = {"subject": subject, "version": version, "id": schema_id, "schema": text}
        return 200, json.dumps(said).encode()


def _can_read(new: Any, old: Any) -> bool:
    """Whether the new schema can read what the old one wrote, as far as is known here."""
    if not (isinstance(new, dict) and isinstance(old, dict) and "fields" in new and "fields" in old):
        return bool(new == old or (isinstance(new, list) and old in new))
    before = {field["name"]: field["type"] for field in old["fields"]}
    return all(
        before[field["name"]] == field["type"] if field["name"] in before else "default" in field
        for field in new["fields"]
    )


class Handler(BaseHTTPRequestHandler):
    server: _Server
    body = b""

    def do_POST(self) -> None:
        self.body = self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def do_GET(self) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            self.server.owner.answer(self)

    def write(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    owner: RegistryServer

    def handle_error(self, *_: Any) -> None:
        """Say nothing: a client that trusts nobody breaks off."""


@contextmanager
def registry_server(tls: ssl.SSLContext | None = None) -> Iterator[RegistryServer]:
    server = RegistryServer(tls)
    try:
        yield server
    finally:
        server.down()


V1 = {
    "type": "record",
    "name": "Flight",
    "fields": [{"name": "carrier", "type": "string"}, {"name": "delay", "type": "int"}],
}
V2 = {**V1, "fields": [*V1["fields"], {"name": "gate", "type": ["null", "string"]}]}


def registered(schema_id: int, schema: Any, value: Any) -> bytes:
    """What a serializer writes: a zero, the id, the datum."""
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(schema), value)
    return b"\0" + schema_id.to_bytes(4, "big") + written.getvalue()
