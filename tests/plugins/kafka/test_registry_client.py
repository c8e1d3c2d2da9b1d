"""What a schema registry may answer, over real HTTP, and what is made of it."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme
from pydantic import SecretStr

from kiwi_gw.api import RegisteredSchema
from kiwi_kafka.registry.client import MOST_BYTES, MOST_REFERENCES, RegistryClient
from kiwi_kafka.registry.documents import NoSchema, RegistryUnavailable
from kiwi_kafka.settings import RegistrySettings
from tests.plugins.kafka.registry_server import (
    NO_PATH,
    V1,
    V2,
    Handler,
    RegistryServer,
    registered,
    registry_server,
)


def client_of(server: RegistryServer, deadline: float = 10.0, **settings: Any) -> RegistryClient:
    return RegistryClient(RegistrySettings(url=server.url, **settings), deadline)


async def unavailable(client: RegistryClient) -> str:
    with pytest.raises(RegistryUnavailable) as caught:
        await client.schema(1)
    return str(caught.value)


async def test_a_schema(server: RegistryServer) -> None:
    server.add(1, V1)
    server.add(2, V2, schemaType="AVRO", references=[])
    server.add(2**31 - 1, '"int"', schemaType=None, references=None)
    client = client_of(server)
    for schema_id, schema, value in (
        (1, V1, {"carrier": "AA", "delay": 5}),
        (2, V2, {"carrier": "UA", "delay": 5, "gate": None}),
        (2**31 - 1, "int", 7),
    ):
        found = await client.schema(schema_id)
        assert isinstance(found, RegisteredSchema)
        assert (found.id, found.read(registered(schema_id, schema, value))) == (schema_id, value)
    assert server.requests == ["/schemas/ids/1", "/schemas/ids/2", f"/schemas/ids/{2**31 - 1}"]


async def test_below_a_path(server: RegistryServer) -> None:
    server.answers["/api/v7/schemas/ids/1"] = 200, b'{"schema": "\\"string\\""}'
    for url in (f"{server.url}/api/v7", f"{server.url}/api/v7/"):
        client = RegistryClient(RegistrySettings(url=url))
        assert isinstance(await client.schema(1), RegisteredSchema)


async def test_one_that_refers_to_others(server: RegistryServer) -> None:
    city = {"type": "record", "name": "a.City", "fields": [{"name": "name", "type": "string"}]}
    airport = {"type": "record", "name": "a.Airport", "fields": [{"name": "city", "type": "a.City"}]}
    flight = {
        "type": "record",
        "name": "a.Flight",
        "fields": [{"name": "from", "type": "a.Airport"}, {"name": "at", "type": "a.City"}],
    }
    to_city = {"name": "a.City", "subject": "city%2Fvalue", "version": 3}
    to_city["subject"] = "city/value"
    server.add_subject("city%2Fvalue", 3, city)
    server.add_subject("airport", 1, airport, references=[to_city])
    to_airport = {"name": "a.Airport", "subject": "airport", "version": 1}
    server.add(1, flight, references=[to_airport, to_city])
    found = await client_of(server).schema(1)
    assert isinstance(found, RegisteredSchema)
    value = b"\0\0\0\0\1" + b"\x06ABC" + b"\x06DEF"
    assert found.read(value) == {"from": {"city": {"name": "ABC"}}, "at": {"name": "DEF"}}
    assert len(server.requests) == 3

    server.add(2, flight, references=[{"name": "x", "subject": "gone", "version": 1}])
    refused = await client_of(server).schema(2)
    assert refused == NoSchema("it refers to another one: the registry does not know it")


async def test_references_without_end(server: RegistryServer) -> None:
    for n in range(200):
        following = {"name": "x", "subject": f"s{n + 1}", "version": 1}
        server.add_subject(f"s{n}", 1, {"type": "fixed", "name": f"f{n}", "size": 1}, references=[following])
    server.add(1, V1, references=[{"name": "x", "subject": "s0", "version": 1}])
    refused = await client_of(server).schema(1)
    assert isinstance(refused, NoSchema)
    assert "more than 64" in refused.reason
    assert len(server.requests) == MOST_REFERENCES + 1
    # One that refers to itself is asked for once.
    again = {"name": "x", "subject": "s", "version": 1}
    server.add_subject("s", 1, {"type": "fixed", "name": "f", "size": 1}, references=[again])
    server.add(2, '{"type": "array", "items": "f"}', references=[again])
    assert isinstance(await client_of(server).schema(2), RegisteredSchema)


@pytest.mark.parametrize(
    ("schema", "more", "reason"),
    [
        ("syntax = ...", {"schemaType": "PROTOBUF"}, "its schema is no AVRO but 'PROTOBUF'"),
        ({"type": "object"}, {"schemaType": "JSON"}, "its schema is no AVRO but 'JSON'"),
        ("{", {}, "it cannot be used: this is no Avro schema"),
        ('"x.Unknown"', {}, "it cannot be used: this is no Avro schema"),
        ({"type": "array", "items": "null"}, {}, "it cannot be used: it has an array of what takes no bytes"),
        ("[" * 100_000, {}, "it cannot be used: this is no Avro schema"),
    ],
)
async def test_what_cannot_be_used(server: RegistryServer, schema: Any, more: Any, reason: str) -> None:
    server.add(1, schema, **more)
    refused = await client_of(server).schema(1)
    assert isinstance(refused, NoSchema)
    assert refused.reason.startswith(reason)
    assert not refused.unknown


async def test_references_that_are_too_large_together(server: RegistryServer) -> None:
    large = {"type": "int", "doc": "x" * (MOST_BYTES // 2 - 1_000)}
    names = [f"r{n}" for n in range(9)]
    for name in names:
        server.add_subject(name, 1, large)
    references = [{"name": name, "subject": name, "version": 1} for name in names]
    server.add(1, "int", references=references)
    client = RegistryClient(RegistrySettings(url=server.url))
    assert await client.schema(1) == NoSchema("it refers to another one: they are too large together")
    assert len(server.requests) == 1 + 3


async def test_one_that_is_too_large(server: RegistryServer) -> None:
    server.add(1, '"' + "x" * MOST_BYTES + '"')
    assert await client_of(server).schema(1) == NoSchema("its schema is too large")


async def test_an_id_that_nobody_has(server: RegistryServer) -> None:
    client = client_of(server)
    assert await client.schema(1) == NoSchema("the registry does not know it", unknown=True)
    await client.check()
    # A 404 of something else says nothing of the id.
    for body in (NO_PATH[1], b"<html>", b"", b"[]", b'{"error_code":"40403"}'):
        server.trouble = 404, body
        assert await unavailable(client) == "HTTP status 404"
    with pytest.raises(RegistryUnavailable):
        await client.check()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((500, b"{}"), "HTTP status 500"),
        ((503, b""), "HTTP status 503"),
        ((429, b"{}"), "HTTP status 429"),
        ((500, b"x" * (MOST_BYTES + 70_000)), "HTTP status 500"),
        ((401, b"{}"), "it refuses user and password (HTTP status 401)"),
        ((403, b"{}"), "it refuses user and password (HTTP status 403)"),
        ((200, b""), "it is empty"),
        ((200, b"<html>"), "its answer is no schema: "),
        ((200, b"[]"), "its answer is no schema: "),
        ((200, b"{}"), "its answer is no schema: "),
        ((200, b'{"schema": 5}'), "its answer is no schema: "),
        ((200, b'{"schema": "\\"int\\"", "references": [{"subject": 1}]}'), "its answer is no schema: "),
        ((200, b"[" * 900_000), "its answer is no schema: "),
    ],
)
async def test_what_says_nothing_of_the_schema(
    server: RegistryServer, answer: tuple[int, bytes], words: str
) -> None:
    server.trouble = answer
    assert (await unavailable(client_of(server))).startswith(words)


async def test_user_and_password(server: RegistryServer) -> None:
    server.user = "ada", "pässword:with"
    server.add(1, V1)
    right = client_of(server, user="ada", password=SecretStr("pässword:with"))
    assert isinstance(await right.schema(1), RegisteredSchema)
    for wrong in (client_of(server), client_of(server, user="ada", password=SecretStr("no"))):
        assert "refuses user and password" in await unavailable(wrong)


async def test_elsewhere_is_not_followed(server: RegistryServer) -> None:
    server.add(2, V1)
    server.user = "ada", "secret"
    redirect = {"Location": f"{server.url}/schemas/ids/2"}
    server.answers["/schemas/ids/1"] = lambda handler: handler.write(302, b"", **redirect)
    client = client_of(server, user="ada", password=SecretStr("secret"))
    assert await unavailable(client) == "HTTP status 302"
    assert server.requests == ["/schemas/ids/1"]


async def test_nobody_listens(server: RegistryServer) -> None:
    server.down()
    assert "refused" in await unavailable(client_of(server))


def _drip(handler: Handler) -> None:
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b" ")


@pytest.mark.parametrize("how", ["silent", "dripping"])
async def test_one_that_is_slow_is_broken_off(server: RegistryServer, how: str) -> None:
    if how == "silent":
        server.gate.clear()
    server.answers["/schemas/ids/1"] = _drip
    with trio.fail_after(5):
        message = await unavailable(client_of(server, deadline=0.2))
    slow = ("no answer within 0.2 s", "TimeoutError: it takes too long", "TimeoutError: timed out")
    assert message in (*slow, "it is too large")


async def test_a_call_that_is_cancelled_leaves_nothing_behind(server: RegistryServer) -> None:
    server.gate.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client_of(server).schema, 1)
        await trio.to_thread.run_sync(server.asked.wait, 5)
        nursery.cancel_scope.cancel()


async def test_https_with_an_authority_of_its_own(tmp_path: Path) -> None:
    authority, other = trustme.CA(), trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(tls)
    for name, made in (("ca.pem", authority), ("other.pem", other)):
        made.cert_pem.write_to_path(str(tmp_path / name))
    with registry_server(tls) as server:
        server.add(1, V1)
        assert isinstance(await client_of(server, ca=tmp_path / "ca.pem").schema(1), RegisteredSchema)
        for wrong in (client_of(server), client_of(server, ca=tmp_path / "other.pem")):
            assert "CERTIFICATE_VERIFY_FAILED" in await unavailable(wrong)
        with pytest.raises(OSError, match="No such file"):
            client_of(server, ca=tmp_path / "none.pem")
        (tmp_path / "damaged.pem").write_text("no certificate")
        with pytest.raises(OSError, match="NO_CERTIFICATE"):
            client_of(server, ca=tmp_path / "damaged.pem")


async def test_a_port_where_something_else_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def speak() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"220 mail\r\n")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, speak)
            client = RegistryClient(RegistrySettings(url=f"http://127.0.0.1:{port}"))
            assert await unavailable(client) == "BadStatusLine"
