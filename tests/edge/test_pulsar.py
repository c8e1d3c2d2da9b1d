"""Pulsar's REST interface: what is answered to every kind of request, through the whole gateway."""

from __future__ import annotations

import gc
import gzip
import json
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest
import trio
import trio.lowlevel
from trio.testing import wait_all_tasks_blocked

from kiwi_gw.api import Action, HeadCredential, Identity, Permit, Refusal, SourceInfo, hookimpl
from kiwi_gw.dialects.pulsar import topics
from kiwi_gw.dialects.pulsar.message_ids import read_message_id
from kiwi_gw.dialects.pulsar.settings import PulsarSettings, PulsarSource
from kiwi_gw.edge import dialect_http, listener
from kiwi_gw.edge.http_exchange import HttpLimits
from kiwi_gw.testing import GatewayUnderTest, Script, ScriptedSources, open_gateway
from tests.edge.wire import asked

SETTINGS = "plugins: [scripted{plugins}]\npulsar: {{enabled: true{more}}}\nsources:\n"
SOURCES = """\
  - {type: scripted, id: orders}
  - {type: scripted, id: others, pulsar: {name: shop/eu/x, schema: {type: JSON}}}
"""
OWN = "/topics/public/default/orders"
BROKER = "/topics/persistent/public/default/orders"
JSON = ("Content-Type", "application/json")
ADMIN = ("Authorization", "Bearer writer")


class Rights:
    """Lets `writer` do all, `reader` read, `keeper` commit, and others nothing."""

    @hookimpl
    def authenticate(self, credential: object) -> Identity | Refusal | None:
        assert isinstance(credential, HeadCredential)
        name = (credential.header("authorization") or "").removeprefix("Bearer ")
        return Identity(name) if name else Refusal("no_token", "who are you?")

    @hookimpl
    def authorize(
        self, identity: Identity, action: Action, source: SourceInfo | None
    ) -> Permit | Refusal | None:
        may = {"reader": Action.SUBSCRIBE, "keeper": Action.COMMIT}
        if identity.name == "writer" or may.get(identity.name) is action:
            return Permit()
        return Refusal("forbidden", "not for you")


@asynccontextmanager
async def pulsar(
    *, rights: bool = False, writable: bool = True, more: str = "", server: str = ""
) -> AsyncIterator[tuple[GatewayUnderTest, Script]]:
    sources = ScriptedSources(writable=writable)
    plugins: dict[str, Any] = {"scripted": sources} | ({"rights": Rights()} if rights else {})
    text = SETTINGS.format(plugins=", rights" if rights else "", more=more) + SOURCES + server
    async with open_gateway(text, plugins=plugins) as gateway:
        with trio.fail_after(20):
            yield gateway, sources["orders"]


async def ask(
    gateway: GatewayUnderTest,
    body: object = b"",
    path: str = OWN,
    method: str = "POST",
    headers: Sequence[tuple[str, str]] = (JSON,),
) -> tuple[int, dict[str, str], Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    status, said, found = await asked(gateway, method, path, headers, data)
    return status, said, json.loads(found) if found else None


def messages(*found: object, **more: object) -> dict[str, object]:
    return {"schema_type": "string", "messages": list(found), **more}


async def test_what_is_written_has_ids() -> None:
    async with pulsar() as (gateway, script):
        status, headers, answer = await ask(
            gateway, messages({"key": "k", "value": "a"}, {"value": None, "sequenceId": 7})
        )
        assert (status, headers["content-type"], answer["schema_version"]) == (200, "application/json", None)
        first, second = answer["messageIds"]
        assert first | {"messageId": ""} == {
            "partition": 0, "messageId": "", "error_code": None, "error": None
        }  # fmt: skip
        ids = [read_message_id(each["messageId"]) for each in (first, second)]
        assert [(each.offset, each.partition) for each in ids] == [(0, 0), (1, 0)]
        assert ids[0].life == ids[1].life
        assert script.positions == {0: 2}
        status, _, answer = await ask(
            gateway, messages({"value": "a", "partition": 0}), OWN + "/partitions/0"
        )
        assert (status, answer["messageIds"][0]["partition"]) == (200, 0)
        status, _, answer = await ask(gateway, {"messages": [{"value": {"a": 1}}]}, "/topics/shop/eu/x")
        assert status == 200


async def test_the_form_of_brokers() -> None:
    async with pulsar() as (gateway, _):
        body = {"messages": [{"payload": "a", "key": "k", "eventTime": "17"}, {"payload": "b"}], "other": 1}
        status, _, answer = await ask(gateway, body, BROKER)
        ledger = answer["messagePublishResults"][0]["messageId"].split(":")[0]
        assert (status, answer) == (
            200,
            {
                "messagePublishResults": [
                    {"messageId": f"{ledger}:{n}:0", "errorCode": 0, "schemaVersion": 0} for n in range(2)
                ],
                "schemaVersion": 0,
            },
        )
        numbers = {"valueSchema": '{"type":"INT32"}', "messages": [{"payload": "5"}]}
        assert (await ask(gateway, numbers, BROKER + "/partitions/0"))[0] == 200
    async with pulsar(more=", broker_shape: false") as (gateway, _):
        assert (await ask(gateway, body, BROKER))[2]["error_code"] == 40400


ROWS: list[tuple[object, str, str, int]] = [
    (b'{"messages":[{"value":{"a":"\xff"}}]}', OWN, "the body is not JSON", 40001),
    (messages({"value": "a"}, **{"`$.messages[" + "9" * 5_000 + "]`": 1}), OWN, "unknown field", 42205),
    (messages({"value": "a"}), OWN + "?topic=other", "topic is in the path already", 40001),
    (messages({"value": "a"}), OWN + "/partitions/0.0", "partition must be an integer", 40001),
    (messages({"value": "a"}), OWN + "/partitions/0%0A", "partition must be an integer", 40001),
    (
        messages(*[{"value": "a", "properties": {str(n): "" for n in range(1_000)}}] * 11),
        OWN,
        "the messages of a request may have 10,000 properties together",
        42205,
    ),
    (b"{", OWN, "the body is not JSON", 40001),
    (b'{"messages":[{"value":' + b"[" * 100_000, OWN, "the body is not JSON", 40001),
    (messages({"value": "a"}), OWN + "?x=1", "unknown parameter", 40001),
    (messages({"value": "a"}), "/topics/public/default/none", "there is no such topic", 40401),
    (messages({"value": "a"}), "/topics/public/default", "nothing is served at this path", 40400),
    (messages({"value": "a"}), "/topics", "nothing is served at this path", 40400),
    (messages({"value": "a"}), OWN + "/partitions/9", "there is no partition 9", 40402),
    (messages({"value": "a"}), OWN + "/partitions/x", "partition must be an integer from 0", 40001),
    (messages({"value": "a", "partition": 0}, schema_type="key_value"), OWN, "key_value needs both", 42201),
    (messages({"value": {}}, schema_type="json"), OWN, "json needs value_schema", 42202),
    (messages({"value": {}}, schema_type="avro"), OWN, "avro needs value_schema", 42202),
    (
        messages({"value": 1}, schema_type="key_value", key_schema=5, value_schema={"type": "int8"}),
        OWN,
        "the schema must be an object",
        42203,
    ),
    (messages({"value": "a"}, key_schema={"type": "int8"}), OWN, "key_schema is for schema_type", 42203),
    (messages({"value": "a"}, schema_version=3), OWN, "there are no versions of schemas here", 42204),
    (messages({"value": "a"}, value_schema={"type": "int8"}), OWN, "schema_type and the type of", 42204),
    (messages(), OWN, "messages must be an array of 1 to 10,000", 42205),
    (messages(*[{"value": "a"}] * 10_001), OWN, "messages must be an array of 1 to 10,000", 42205),
    (messages({"value": "a"}, more=1), OWN, "unknown field", 42205),
    (messages({"value": "a"}, {"value": 5}), OWN, "nothing was written: message 1: value must be", 42205),
    (messages({"value": "a", "more": 1}), OWN, "nothing was written: message 0: Object contains", 42205),
    (messages({"key": "k"}), OWN, "nothing was written: message 0: Object missing", 42205),
    (messages({"value": "a", "key": 5}), OWN, "nothing was written: message 0: key must be a string", 42205),
    (messages({"value": "a", "partition": 4}), OWN, "message 0: there is no partition 4", 42205),
    (messages({"value": "a", "partition": -1}), OWN, "partition must be an integer from 0", 42205),
    (messages({"value": "a", "eventTime": -1}), OWN, "eventTime must be milliseconds since 1970", 42205),
    (messages({"value": "a", "properties": {"__pulsar.x": ""}}), OWN, "must not begin with __pulsar.", 42205),
    (messages({"value": "a", "properties": {"x": 1}}), OWN, "properties must be an object of at most", 42205),
    (
        messages({"value": "a", "properties": {str(n): "" for n in range(1_001)}}),
        OWN,
        "message 0: properties must be an object of at most 1,000 strings",
        42205,
    ),
    (
        b'{"messages":[{"value":1},' + b"1," * 60_000 + b"1]}",
        OWN,
        "message 1: Expected `object`, got `int`",
        42205,
    ),
    (messages({"value": "x" * 1_000_001}), OWN, "it has 1,000,001 bytes, and may have 1,000,000", 42205),
    (messages({"value": "a"}, schema_type="protobuf"), OWN, "there is no schema type 'protobuf'", 42206),
    (messages({"value": "a", "deliverAfterMs": 1}), OWN, "Kafka cannot deliver a message later", 42206),
    (messages({"value": "a", "deliverAt": 2**62}), OWN, "Kafka cannot deliver a message later", 42206),
    (messages({"value": "a", "replicationClusters": ["x"]}), OWN, "Kafka cannot choose to which", 42206),
    (messages({"value": "a", "disableReplication": True}), OWN, "Kafka cannot choose to which", 42206),
    (b" " * (1 << 20) + b"{}", OWN, "larger than", 41301),
]


@pytest.mark.parametrize(("body", "path", "words", "code"), ROWS)
async def test_what_cannot_be_used_writes_nothing(body: object, path: str, words: str, code: int) -> None:
    async with pulsar() as (gateway, script):
        status, headers, answer = await ask(gateway, body, path)
        assert (status, answer["error_code"]) == (code // 100, code)
        assert words in answer["message"]
        assert headers["content-type"] == "application/json"
        assert script.positions == {0: 0}


async def test_many_invalid_messages_are_named_by_their_place() -> None:
    async with pulsar() as (gateway, _):
        for bad in ({"value": 5}, {"value": "a", "sequenceId": "x"}):
            found = [bad if n % 2 else {"value": "a"} for n in range(100)]
            answer = (await ask(gateway, messages(*found)))[2]
            assert [each["index"] for each in answer["invalid"]] == list(range(1, 32, 2))


@pytest.mark.parametrize(
    ("body", "path", "words", "status"),
    [
        (b"{", BROKER, "the body is not JSON", 400),
        ({"messages": []}, BROKER, "messages must be an array of 1 to 10,000 messages", 422),
        ({"messages": [{"payload": "a"}]}, "/topics/persistent/a/b/c", "there is no such topic", 404),
        ({"messages": [{"payload": "a"}]}, BROKER + "/x", "nothing is served at this path", 404),
        ({"messages": [{"payload": "a", "eventTime": "x"}]}, BROKER, "eventTime must be", 422),
        (
            {"messages": [{"payload": "x"}], "valueSchema": '{"type":"INT8"}'},
            BROKER,
            "a payload is not what its",
            422,
        ),
        ({"messages": [{"payload": "{"}], "valueSchema": '{"type":"JSON"}'}, BROKER, "a payload is not", 422),
        ({"messages": [{"payload": ""}], "valueSchema": '{"type":"JSON"}'}, BROKER, "a payload is not", 422),
        (
            {"messages": [{"payload": "300"}], "valueSchema": '{"type":"INT8"}'},
            BROKER,
            "message 0: value",
            422,
        ),
        ({"messages": [{"payload": "x"}], "valueSchema": "{"}, BROKER, "the schema must be an object", 422),
        ({"messages": [{"payload": "x"}], "keySchema": "{}"}, BROKER, "keys are text here", 422),
        ({"messages": [{"payload": "x"}], "schemaVersion": 0}, BROKER, "there are no versions", 422),
    ],
)
async def test_errors_in_the_form_of_brokers(body: object, path: str, words: str, status: int) -> None:
    async with pulsar() as (gateway, script):
        found, _, answer = await ask(gateway, body, path)
        assert (found, list(answer)) == (status, ["reason"])
        assert words in answer["reason"]
        assert script.positions == {0: 0}


async def test_rights() -> None:
    body = messages({"value": "a"})
    async with pulsar(rights=True) as (gateway, _):
        for name, expected in (
            ("writer", None), ("reader", 40301), ("keeper", 40301), ("nobody", 40401), ("", 40101)
        ):  # fmt: skip
            headers = [JSON, ("Authorization", f"Bearer {name}")] if name else [JSON]
            status, said, answer = await ask(gateway, body, headers=headers)
            assert answer.get("error_code") == expected
            if expected == 40101:
                assert said["www-authenticate"] == "Bearer"
        status, _, answer = await ask(gateway, body, BROKER)
        assert (status, list(answer)) == (401, ["reason"])


async def test_a_source_that_is_not_open_for_writing() -> None:
    async with pulsar(writable=False) as (gateway, _):
        status, headers, answer = await ask(gateway, messages({"value": "a"}))
        assert (status, answer["error_code"], headers["allow"]) == (405, 40501, "OPTIONS")


async def test_methods_media_types_and_pages() -> None:
    page = ("Origin", "http://page.example")
    async with pulsar(server="server: {allowed_origins: ['http://page.example']}\n") as (gateway, _):
        status, headers, answer = await ask(gateway, path=OWN, method="PUT", headers=[])
        assert (status, answer["error_code"], headers["allow"]) == (405, 40501, "OPTIONS, POST")
        status, headers, answer = await ask(gateway, path=OWN, method="OPTIONS", headers=[page])
        assert (status, headers["allow"], answer) == (204, "OPTIONS, POST", None)
        assert headers["cache-control"] == "no-store"
        assert headers["access-control-allow-origin"] == page[1]
        text = [("Content-Type", "text/plain")]
        assert (await ask(gateway, messages({"value": "a"}), headers=text))[2]["error_code"] == 41501
        evil = [JSON, ("Origin", "http://evil.example")]
        assert (await ask(gateway, messages({"value": "a"}), headers=evil))[2]["error_code"] == 40301
        status, headers, _ = await ask(gateway, messages({"value": "a"}), headers=[JSON, page])
        assert (status, headers["cache-control"]) == (200, "no-store")


@pytest.mark.slow
async def test_a_source_that_does_not_answer_is_503_with_what_is_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def hang(*args: object, **keys: object) -> None:
        await trio.sleep_forever()

    async with pulsar(more=", produce_timeout_ms: 1000") as (gateway, script):
        monkeypatch.setattr(script, "publish", hang)
        status, headers, answer = await ask(gateway, messages({"value": "a"}))
        assert (status, answer["error_code"], headers["retry-after"]) == (503, 50301, "1")
        assert answer["messageIds"] == [
            {"partition": None, "messageId": None, "error_code": 2, "error": "outcome unknown"}
        ]


async def test_it_is_described() -> None:
    async with pulsar() as (gateway, _):
        document = (await ask(gateway, path="/openapi.json", method="GET", headers=[]))[2]
        post = document["paths"]["/topics/{tenant}/{namespace}/{topic}/partitions/{partition}"]["post"]
        assert [each["name"] for each in post["parameters"]] == ["tenant", "namespace", "topic", "partition"]
        assert list(post["responses"]["default"]["content"]) == ["application/json"]
        body = post["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        assert document["components"]["schemas"][body]["required"] == ["messages"]


def test_what_a_source_may_be_called() -> None:
    settings = PulsarSettings(enabled=True)
    block = PulsarSource.model_validate({"name": "a/b/c"})
    assert topics.topic_name("orders", {}, settings) == "public/default/orders"
    assert topics.topic_name("orders", {"pulsar": block}, settings) == "a/b/c"
    for wrong in (
        {"name": "persistent/b/c"},
        {"name": "a/b"},
        {"name": "a/b/c/d"},
        {"schema": {"type": "AVRO"}},
    ):
        with pytest.raises(ValueError, match=r"name|schema"):
            PulsarSource.model_validate(wrong)
    with pytest.raises(ValueError, match="cannot be a tenant"):
        PulsarSettings(tenant="persistent")


async def raw(gateway: GatewayUnderTest, head: str, body: bytes = b"") -> bytes:
    """Send a request, and read to the end of the connection."""
    async with await gateway.connect() as stream:
        await stream.send_all(head.replace("\n", "\r\n").encode() + body)
        found = b""
        while data := await stream.receive_some():
            found += data
    return found


EXPECTING = """\
POST {} HTTP/1.1
Host: 127.0.0.1
Content-Type: application/json
Content-Length: 1000
Expect: 100-continue

"""


async def test_a_body_is_not_asked_for_in_vain() -> None:
    async with pulsar() as (gateway, _):
        for path in ("/topics/public/default/none", OWN + "/partitions/9", OWN + "?x=1"):
            answer = await raw(gateway, EXPECTING.format(path))
            assert answer.startswith(b"HTTP/1.1 40"), "and not 100"
            assert b"Connection: close" in answer
        async with await gateway.connect() as stream:
            await stream.send_all(EXPECTING.format(OWN).replace("\n", "\r\n").encode())
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 100")
        # What takes no body asks for none.
        head = EXPECTING.format(OWN + "/partitions/0/messages").replace("POST", "GET", 1)
        assert (await raw(gateway, head)).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    "head", ["POST {} HTTP/2.0\nHost: h\n\n", "POST {} HTTP/1.1\nHost: h\nTransfer-Encoding: gzip\n\n"]
)
async def test_what_a_request_alone_can_cause_is_no_failure_of_the_gateway(head: str) -> None:
    async with pulsar() as (gateway, _):
        for path, said in ((OWN, b'"error_code":40001'), (BROKER, b'{"reason":')):
            answer = await raw(gateway, head.format(path))
            assert answer.startswith(b"HTTP/1.1 400 ")
            assert said in answer


@pytest.mark.parametrize("path", ["/subscription/s", "/subscription/s/cursor"])
@pytest.mark.parametrize(
    ("topic", "who", "code"),
    [("none", "writer", 40401), ("orders", "nobody", 40401), ("orders", "reader", 40301)],
)
async def test_who_has_no_right_to_a_subscription_is_not_asked_for_a_body(
    path: str, topic: str, who: str, code: int
) -> None:
    async with pulsar(rights=True) as (gateway, _):
        head = EXPECTING.format(f"/topics/public/default/{topic}{path}")
        answer = await raw(gateway, head.replace("Expect", f"Authorization: Bearer {who}\nExpect"))
        assert answer.startswith(b"HTTP/1.1 40"), "and not 100"
        assert f'"error_code":{code}'.encode() in answer


@pytest.mark.parametrize("path", [OWN, OWN + "/subscription/s", OWN + "/subscription/s/cursor"])
async def test_who_may_not_write_holds_up_nobody_who_may(path: str) -> None:
    """However many begin to send what they have no right to."""
    async with pulsar(rights=True) as (gateway, _), AsyncExitStack() as stack:
        for _ in range(70):
            stream = await stack.enter_async_context(await gateway.connect())
            head = EXPECTING.format(path).replace("Expect: 100-continue\n", "Authorization: Bearer nobody\n")
            await stream.send_all(head.replace("1000", "1048576").replace("\n", "\r\n").encode())
            with suppress(trio.BrokenResourceError):
                await stream.send_all(b" " * 100_000)
        assert (await ask(gateway, messages({"value": "a"}), headers=[JSON, ADMIN]))[0] == 200
        assert gateway.gateway.request_load.body_bytes == 0


class Passing(Rights):
    """Lets everybody do all, until it does not."""

    refused = False

    @hookimpl
    def authenticate(self, credential: object) -> Identity | Refusal | None:
        return Identity("writer")

    @hookimpl
    def reauthenticate(self, identity: Identity) -> Identity | Refusal | None:
        return Refusal("revoked", "not any more") if self.refused else None


@pytest.mark.parametrize("path", [OWN, OWN + "/subscription/s", OWN + "/subscription/s/cursor"])
async def test_who_takes_long_to_send_a_body_is_judged_when_it_is_there(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(dialect_http, "_LONG_SECONDS", 0.0)
    rights, body = Passing(), json.dumps(messages({"value": "a"})).encode()
    sources = ScriptedSources(writable=True)
    text = SETTINGS.format(plugins=", rights", more="") + SOURCES
    async with open_gateway(text, plugins={"scripted": sources, "rights": rights}) as gateway:
        async with await gateway.connect() as stream:
            head = EXPECTING.format(path).replace("1000", str(len(body)))
            await stream.send_all(head.replace("\n", "\r\n").encode())
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 100")
            rights.refused = True
            await stream.send_all(body)
            answer = await stream.receive_some()
        assert answer.startswith(b"HTTP/1.1 401")
        assert b'"error_code":40101' in answer
        assert sources["orders"].positions == {0: 0}


async def test_what_is_left_of_a_body_ends_the_connection_and_it_says_so() -> None:
    head = f"POST {OWN} HTTP/1.1\nHost: 127.0.0.1\nContent-Type: text/plain\nContent-Length: 200000\n\n"
    async with pulsar() as (gateway, _):
        answer = await raw(gateway, head, b" " * 200_000)
        assert answer.startswith(b"HTTP/1.1 415")
        assert b"Connection: close" in answer


async def test_a_kept_connection_does_not_hold_on_to_the_last_body() -> None:
    body = b" " * 30_000
    head = f"POST {OWN}x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    async with pulsar() as (gateway, _), AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(await gateway.connect()) for _ in range(20)]
        for stream in streams:  # what every connection has
            await stream.send_all(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            await stream.receive_some()
        tracemalloc.start()
        try:
            for stream in streams:
                await stream.send_all(head + body)
                assert b" 40" in await stream.receive_some()
            await wait_all_tasks_blocked()
            gc.collect()
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert held / len(streams) < 10_000


async def test_head_has_no_body() -> None:
    async with pulsar() as (gateway, _):
        answer = await raw(gateway, f"HEAD {OWN} HTTP/1.1\nHost: 127.0.0.1\nConnection: close\n\n")
        assert answer.startswith(b"HTTP/1.1 405")
        assert answer.endswith(b"\r\n\r\n")


async def test_a_request_that_has_no_end_or_too_much_of_a_head_is_told_in_the_protocols_shape() -> None:
    async with pulsar() as (gateway, _):
        long = "a" * 9_000
        for path, words, status in (
            (OWN, f"Long: {long}\n\n", 431),
            (f"{OWN}?long={long}", "\n\n", 431),
            (f"http://127.0.0.1{OWN}", f"Long: {long}\n\n", 431),
            (OWN, "Content-Length: 1\nContent-Length: 1\n\n", 400),
            (OWN, "Name : a\n\n", 400),
            (OWN, "Expect: nothing\n\n", 417),
        ):
            answer = await raw(gateway, f"POST {path} HTTP/1.1\nHost: 127.0.0.1\n{words}")
            head, _, body = answer.partition(b"\r\n\r\n")
            assert head.startswith(f"HTTP/1.1 {status}".encode())
            assert json.loads(body)["error_code"] in (status * 100, 40001)
        answer = await raw(gateway, f"POST {BROKER} HTTP/1.1\nHost: 127.0.0.1\nLong: {long}\n\n")
        assert "reason" in json.loads(answer.partition(b"\r\n\r\n")[2])


async def test_an_unknown_parameter_is_told_of_and_which_there_are() -> None:
    async with pulsar() as (gateway, _):
        answer = (await ask(gateway, messages({"value": "a"}), OWN + "?acks=0"))[2]
        assert answer == {"error_code": 40001, "message": "unknown parameter in the query; there are: none"}
        answer = (await ask(gateway, path=OWN + "/partitions/0/messages?form=latest", method="GET"))[2]
        words = "unknown parameter in the query; there are: from, timeout, max_messages, max_bytes"
        assert answer["message"] == f"{words}, include_schema"


async def test_gzip_may_have_several_members() -> None:
    body = json.dumps(messages({"value": "a"})).encode()
    async with pulsar() as (gateway, _):
        parts = gzip.compress(body[:10]) + gzip.compress(body[10:])
        assert (await ask(gateway, parts, headers=[JSON, ("Content-Encoding", "gzip")]))[0] == 200


async def test_gzip_may_not_have_any_number_of_members() -> None:
    """A megabyte of empty ones would take more than a second, and as long from everybody else."""
    body = gzip.compress(b"") * 50_000 + gzip.compress(json.dumps(messages({"value": "a"})).encode())
    assert len(body) < 1 << 20
    async with pulsar() as (gateway, _):
        status, _, answer = await ask(gateway, body, headers=[JSON, ("Content-Encoding", "gzip")])
        assert (status, answer["error_code"], answer["message"]) == (
            400,
            40001,
            "a gzip body has at most 64 members",
        )


async def test_a_gateway_that_stops_answers_the_requests_that_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with pulsar() as (gateway, script):
        publish, begun = script.publish, trio.Event()

        async def slow(*args: Any, **keys: Any) -> Any:
            begun.set()
            await trio.sleep(0.3)
            return await publish(*args, **keys)

        monkeypatch.setattr(script, "publish", slow)
        answers = []

        async def post() -> None:
            answers.append(await ask(gateway, messages({"value": "a"}, {"value": "b"})))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(post)
            await begun.wait()
            nursery.start_soon(gateway.stop)
        ((status, headers, answer),) = answers
        assert (status, headers["connection"]) == (200, "close")
        assert [each["error_code"] for each in answer["messageIds"]] == [None, None]


async def test_who_asks_a_gateway_that_stops_is_to_come_again() -> None:
    async with pulsar() as (gateway, _):
        gateway.gateway.draining = True
        for path, method in ((OWN, "POST"), (OWN + "/partitions/0/messages", "GET")):
            status, headers, answer = await ask(gateway, messages({"value": "a"}), path, method)
            assert (status, answer["error_code"]) == (503, 50303)
            assert (headers["cache-control"], "retry-after" in headers) == ("no-store", True)
        assert "reason" in (await ask(gateway, messages({"value": "a"}), BROKER))[2]


@pytest.mark.parametrize(
    ("more", "status", "code"),
    [
        ("Expect: a miracle", 417, 41700),
        ("Transfer-Encoding: chunked\nContent-Length: 1", 400, 40001),
    ],
)
async def test_errors_of_the_head_have_the_form_of_all_errors(more: str, status: int, code: int) -> None:
    """Where it is known what the request is for, on a new connection and on one that was kept."""
    wrong = f"POST {OWN} HTTP/1.1\nHost: 127.0.0.1\n{more}\n\n"
    right = "GET /health HTTP/1.1\nHost: 127.0.0.1\n\n"
    async with pulsar() as (gateway, _):
        for text in (wrong, right + wrong):
            head, _, body = (await raw(gateway, text)).rpartition(b"\r\n\r\n")
            assert f"HTTP/1.1 {status} ".encode() in head
            assert b"cache-control: no-store" in head.lower()
            assert json.loads(body)["error_code"] == code


async def test_a_body_that_comes_too_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "HttpLimits", partial(HttpLimits, body_seconds=0.1))
    head = f"POST {OWN} HTTP/1.1\nHost: 127.0.0.1\nContent-Type: application/json\nContent-Length: 9\n\n{{"
    async with pulsar() as (gateway, _):
        found, _, body = (await raw(gateway, head)).rpartition(b"\r\n\r\n")
        assert b"HTTP/1.1 408 " in found
        assert b"connection: close" in found.lower()
        assert json.loads(body)["error_code"] == 40801


async def test_a_source_that_is_removed_under_a_request() -> None:
    """Nothing is written then, and not to the one that takes its name."""
    async with pulsar() as (gateway, _):
        large = [{"value": "a"} for _ in range(10_000)]
        answers: list[tuple[int, Any, Any]] = []

        async def post() -> None:
            answers.append(await ask(gateway, messages(*large)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(post)
            while not gateway.gateway.request_load.waiting:
                await trio.lowlevel.checkpoint()
            runner = gateway.gateway._runners.pop("orders")
            runner.source = None
        ((status, _, answer),) = answers
        gateway.gateway._runners["orders"] = runner
        assert (status, answer["error_code"]) == (503, 50301)
        assert {each["error_code"] for each in answer["messageIds"]} == {2}
