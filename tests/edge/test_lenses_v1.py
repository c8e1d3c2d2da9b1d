"""Lenses v1 over a real socket: logging in, reading, losing rights (documents 000 and the issue that settles
what it leaves open)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from argon2.low_level import Type, hash_secret

from kiwi_gw.api import CommitRefused, RefusalCode
from kiwi_gw.dialects.lenses.v1 import subscribing, topics
from kiwi_gw.testing import GatewayUnderTest, ScriptedSources, open_gateway
from kiwi_gw.testing.scripted import _Writable
from tests.edge.wire import BINARY, TEXT, Client, Over, connect, frame, upgrade

BIG = 1_800_000_000_000_000_001

CONFIG = """
plugins: [scripted]
server: {limits: {compiling_percent: 0, connection_compiling_percent: 0}}
lenses: {enabled: true, frame_bytes: 1024, heartbeat_ms: 1000, login_timeout_ms: LOGIN_MS}
sources:
  - {type: scripted, id: orders}
  - {type: scripted, id: prices-internal, lenses: {topic: prices}}
  - {type: scripted, id: secrets}
tokens:
  roles:
    reader: {sources: [orders, prices-internal]}
  static:
    - {name: machine, token: a-token-of-a-machine, roles: [reader]}
  users:
    - {name: ann, password_hash: "HASH", roles: [reader]}
  sessions: {key: a key of thirty-two bytes or more}
"""


class Page:
    """A client that speaks JSON."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def ask(self, kind: str, number: int, content: object, token: str | None = None) -> None:
        request = {"type": kind, "correlationId": number, "content": json.dumps(content), "authToken": token}
        await self.client.send(frame(TEXT, json.dumps(request).encode()))

    async def hear(self) -> dict[str, Any]:
        """Return the next message that is no heartbeat without words."""
        with trio.fail_after(20):
            while True:
                message: dict[str, Any] = json.loads((await self.client.frame()).payload)
                if message != {"type": "HEARTBEAT"}:
                    return message

    async def answer(
        self, kind: str, number: int, content: object, token: str | None = None
    ) -> tuple[str, str]:
        await self.ask(kind, number, content, token)
        heard = await self.hear()
        assert heard["correlationId"] == number
        return heard["type"], heard["content"]


@asynccontextmanager
async def running(login_ms: int = 5_000) -> AsyncIterator[tuple[GatewayUnderTest, ScriptedSources]]:
    made = hash_secret(b"right", b"a fixed salt for tests", 1, 8, 1, 32, Type.ID).decode()
    sources = ScriptedSources(replayable=True)
    text = CONFIG.replace("HASH", made).replace("LOGIN_MS", str(login_ms))
    async with open_gateway(text, plugins={"scripted": sources}) as gateway:
        yield gateway, sources


@asynccontextmanager
async def page(
    gateway: GatewayUnderTest, client_id: str = "me", token: str | None = None
) -> AsyncIterator[Page]:
    headers = [] if token is None else [("Authorization", f"Bearer {token}")]
    async with connect(gateway, f"/api/kafka/ws/{client_id}", headers=headers) as client:
        yield Page(client)


async def test_a_password_a_token_and_two_topics() -> None:
    async with running() as (gateway, sources), page(gateway) as ann:
        assert await ann.answer("SUBSCRIBE", 1, {"sqls": ["SELECT * FROM orders"]}) == (
            "ERROR",
            "log in first: LOGIN, or a token in authToken",
        )
        assert (await ann.answer("LOGIN", 2, {"user": "ann", "password": "wrong"}))[0] == "ERROR"
        kind, token = await ann.answer("LOGIN", BIG, {"user": "ann", "password": "right"})
        assert kind == "SUCCESS"
        sqls = ["SELECT * FROM orders", "SELECT n AS m FROM prices WHERE n > 1"]
        assert await ann.answer("SUBSCRIBE", BIG, {"sqls": sqls}, token) == ("SUCCESS", "orders,prices")
        await sources["orders"].publish([b"one", None, b"three"])
        first = await ann.hear()
        assert (first["correlationId"], first["type"]) == (BIG, "KAFKAMSG")
        assert [(each.get("value"), each["offset"]) for each in first["content"]] == [
            ("one", 0),
            (None, 1),
            ("three", 2),
        ]
        await sources["prices-internal"].publish([b'{"n":1}', b'{"n":2}'])
        (record,) = (await ann.hear())["content"]
        assert json.loads(record["value"]) == {"m": 2}
        assert (record["topic"], record["partition"], record["offset"]) == ("prices", 0, 1)
        # The token is good on another connection, at once in its head, and over HTTP.
        async with page(gateway, "other", token) as other:
            assert await other.answer("SUBSCRIBE", 1, {"sqls": sqls}) == ("SUCCESS", "orders,prices")


async def test_a_static_token_will_do() -> None:
    async with running() as (gateway, sources), page(gateway) as machine:
        wanted = {"sqls": ["SELECT * FROM orders LIMIT 1"]}
        assert await machine.answer("SUBSCRIBE", 1, wanted, "a-token-of-a-machine") == ("SUCCESS", "orders")
        await sources["orders"].publish([b"a", b"b"])
        assert [each["value"] for each in (await machine.hear())["content"]] == ["a"]
        assert await machine.hear() == {
            "type": "HEARTBEAT",
            "ended": [{"topic": "orders", "reason": "limit"}],
        }


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT * FROM nowhere", "sqls[0]: no such topic: `nowhere` (at character 15)"),
        ("SELECT * FROM secrets", "sqls[0]: no such topic: `secrets` (at character 15)"),
        (
            "SELECT * FROM `prices-internal`",
            "sqls[0]: no such topic: `prices-internal` (at character 15)",
        ),
        (
            "SELECT count(*) FROM orders",
            "sqls[0]: needs more than one record: declare a spark source, or use SQL v2 (at character 8)",
        ),
        (
            "SELECT * FROM orders WHERE _vtype='AVRO'",
            "sqls[0]: this source does not declare it as AVRO (decode) (at character 35)",
        ),
        ("SELECT * FROM orders WHERE _vtype='XML'", None),
        ("SELECT", None),
        ("INSERT INTO orders VALUES (1)", None),
        ("SET a=b; SELECT * FROM orders", "sqls[0]: SET a: nothing can be set here (at character 5)"),
    ],
)
async def test_what_cannot_be_subscribed_to(sql: str, words: str | None) -> None:
    async with running() as (gateway, _), page(gateway, token="a-token-of-a-machine") as machine:
        kind, said = await machine.answer("SUBSCRIBE", 1, {"sqls": [sql]})
        assert kind == "ERROR"
        assert said.startswith("sqls[0]: ")
        assert words is None or said == words
        assert not gateway.gateway.hub("orders").subscribers  # type: ignore[union-attr]


LARGE = f"SELECT * FROM orders WHERE n IN ({', '.join(map(str, range(250)))}) OR TRUE"  # noqa: S608  (no database)
"""Read by a process beside the event loop."""


async def test_what_may_not_be_seen_cannot_be_told_from_what_is_not_there() -> None:
    async with running() as (gateway, _), page(gateway, token="a-token-of-a-machine") as it:
        for number, (kind, content) in enumerate(
            [
                ("SUBSCRIBE", {"sqls": ["SELECT * FROM NAME"]}),
                ("SUBSCRIBE", {"sqls": ["SET a=1; SELECT * FROM NAME"]}),
                ("SUBSCRIBE", {"sqls": ["SELECT * FROM NAME", "SELECT * FROM NAME"]}),
                ("SUBSCRIBE", {"sqls": ["SELECT * FROM NAME", "SELECT * FROM zzz"]}),
                ("SUBSCRIBE", {"sqls": ["SELECT * FROM orders", "SELECT * FROM NAME"]}),
                ("PUBLISH", {"topic": "NAME", "ktype": "AVRO", "key": "k"}),
                ("PUBLISH", {"topic": "NAME"}),
                ("COMMIT", {"commits": [{"topic": "NAME", "partition": 0, "offset": 0}]}),
            ]
        ):
            said = []
            for name in ("secrets", "nowhere"):
                asked = json.loads(json.dumps(content).replace("NAME", name))
                heard = await it.answer(kind, number, asked)
                said.append((heard[0], heard[1].replace(name, "NAME")))
            assert said[0] == said[1], content
            assert said[0][0] == "ERROR"


async def test_nothing_follows_an_unsubscribe_while_a_large_statement_is_read() -> None:
    async with running() as (gateway, sources), page(gateway, token="a-token-of-a-machine") as it:
        await it.ask("SUBSCRIBE", 1, {"sqls": [LARGE]})
        await it.ask("UNSUBSCRIBE", 2, {"topics": ["orders"]})
        await it.ask("SUBSCRIBE", 3, {"sqls": ["SELECT * FROM prices"]})
        heard = [await it.hear() for _ in range(3)]
        assert [(each["correlationId"], each["content"]) for each in heard] == [
            (1, "orders"),
            (2, "orders"),
            (3, "prices"),
        ]
        await sources["orders"].publish([b'{"n":1}'])
        await sources["prices-internal"].publish([b"{}"])
        assert (await it.hear())["correlationId"] == 3


async def test_nothing_of_a_client_is_read_while_its_subscribe_waits_for_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (subscribing, topics):  # one statement, and one topic, in a turn
        monkeypatch.setattr(module, "TURN_SECONDS", 0.0)
    both = {"sqls": ["SELECT * FROM orders", "SELECT * FROM prices"]}
    async with running() as (gateway, sources), page(gateway, token="a-token-of-a-machine") as it:
        for number, (kind, content) in enumerate(
            [
                ("SUBSCRIBE", both),
                ("UNSUBSCRIBE", {"topics": ["prices", "orders"]}),
                ("SUBSCRIBE", both),
                ("SUBSCRIBE", both),
            ]
        ):
            await it.ask(kind, number, content)
        heard = [await it.hear() for _ in range(4)]
        assert [(each["correlationId"], each["type"], each["content"]) for each in heard] == [
            (0, "SUCCESS", "orders,prices"),
            (1, "SUCCESS", "prices,orders"),
            (2, "SUCCESS", "orders,prices"),
            (3, "SUCCESS", "orders,prices"),
        ]
        await sources["orders"].publish([b"{}"])
        assert (await it.hear())["correlationId"] == 3


async def test_the_later_of_two_subscribes_holds() -> None:
    async with running() as (gateway, sources), page(gateway, token="a-token-of-a-machine") as it:
        await it.ask("SUBSCRIBE", 1, {"sqls": [LARGE]})
        await it.ask("SUBSCRIBE", 2, {"sqls": ["SELECT * FROM orders", "SELECT * FROM prices"]})
        assert [(await it.hear())["type"] for _ in range(2)] == ["SUCCESS", "SUCCESS"]
        await sources["orders"].publish([b'{"n":1}'])
        assert (await it.hear())["correlationId"] == 2


async def test_from_an_offset_and_from_a_time_whatever_came_before() -> None:
    async with running() as (gateway, sources), page(gateway, token="a-token-of-a-machine") as machine:
        await sources["orders"].publish([b"%d" % n for n in range(10)], timestamp=5_000)
        wanted = {"sqls": ["SELECT * FROM orders WHERE _meta.offset >= 7"]}
        assert (await machine.answer("SUBSCRIBE", 1, wanted))[0] == "SUCCESS"
        assert [each["offset"] for each in (await machine.hear())["content"]] == [7, 8, 9]
        wanted = {"sqls": ["SELECT * FROM orders WHERE _ts >= 5000 AND _offset < 2"]}
        assert (await machine.answer("SUBSCRIBE", 2, wanted))[0] == "SUCCESS"
        assert [each["offset"] for each in (await machine.hear())["content"]] == [0, 1]


@pytest.mark.parametrize("bound", ["", " AND _meta.offset >= 0", " AND _ts >= 0"])
async def test_a_sample_is_of_the_newest_however_much_lies_behind(bound: str) -> None:
    text = CONFIG.replace("[orders, prices-internal]}", "['*'], actions: [subscribe, replay, commit]}")
    text = text.replace("LOGIN_MS", "5000").replace(
        '  users:\n    - {name: ann, password_hash: "HASH", roles: [reader]}\n', ""
    )
    sources = ScriptedSources(writable=True)
    async with (
        open_gateway(text, plugins={"scripted": sources}) as gateway,
        page(gateway, token="a-token-of-a-machine") as machine,
    ):
        await sources["orders"].publish([b"%d" % n for n in range(100)], timestamp=5_000)
        done = {"commits": [{"topic": "orders", "partition": 0, "offset": 3}]}
        assert (await machine.answer("COMMIT", 1, done))[0] == "SUCCESS"
        sql = f"SELECT * FROM orders WHERE _sample=2 AND _sampleWindow=100{bound}"  # noqa: S608  (no database)
        assert (await machine.answer("SUBSCRIBE", 2, {"sqls": [sql]}))[0] == "SUCCESS"
        await sources["orders"].publish([b"new"], timestamp=6_000)
        assert [each["offset"] for each in (await machine.hear())["content"]] == [100]


@pytest.mark.parametrize("may_commit", [True, False])
async def test_where_kafka_lets_the_gateway_see_no_commit_nothing_is_skipped(
    may_commit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may not commit begins with the next record; who may, and has, is told that the gateway may not
    look."""

    async def deny(source: object, group: str) -> None:
        raise CommitRefused(RefusalCode.ORIGIN_DENIED, "the gateway has no right to the group")

    monkeypatch.setattr(_Writable, "committed", deny)
    roles = "['*'], actions: [subscribe, commit]" if may_commit else "['*'], actions: [subscribe]"
    text = CONFIG.replace("[orders, prices-internal]}", roles + "}").replace("LOGIN_MS", "5000")
    text = text.replace('  users:\n    - {name: ann, password_hash: "HASH", roles: [reader]}\n', "")
    async with (
        open_gateway(text, plugins={"scripted": ScriptedSources(writable=True)}) as gateway,
        page(gateway, token="a-token-of-a-machine") as machine,
    ):
        answer = await machine.answer("SUBSCRIBE", 1, {"sqls": ["SELECT * FROM orders"]})
        denied = ("ERROR", "sqls[0]: the gateway has no right to the group")
        assert answer == (denied if may_commit else ("SUCCESS", "orders"))


@pytest.mark.slow
async def test_a_heartbeat_when_nothing_was_sent_for_a_while() -> None:
    async with running() as (gateway, _), page(gateway, token="a-token-of-a-machine") as machine:
        with trio.fail_after(20):
            assert json.loads((await machine.client.frame()).payload) == {"type": "HEARTBEAT"}


async def test_who_does_not_log_in_in_time_is_let_go() -> None:
    async with running(login_ms=100) as (gateway, _), page(gateway) as nobody:
        with pytest.raises(Over) as over:
            await nobody.hear()
        assert over.value.code == 4401


async def test_a_user_who_is_taken_out_is_let_go_and_a_right_that_is_taken_ends_a_topic() -> None:
    async with (
        running() as (gateway, _),
        page(gateway) as ann,
        page(gateway, token="a-token-of-a-machine") as it,
    ):
        await ann.answer("LOGIN", 1, {"user": "ann", "password": "right"})
        sqls = ["SELECT * FROM orders", "SELECT * FROM prices"]
        await it.answer("SUBSCRIBE", 2, {"sqls": sqls})
        text = gateway.file.read_text().replace("sources: [orders, prices-internal]", "sources: [orders]")
        gateway.file.write_text(text.replace("name: ann", "name: bob"))
        heard = await it.hear()
        assert (heard["type"], heard["correlationId"]) == ("ERROR", 2)
        assert heard["content"].startswith("prices: unauthorized")
        with pytest.raises(Over) as over:
            await ann.hear()
        assert over.value.code == 4503


async def test_another_identity_is_judged_anew() -> None:
    async with running() as (gateway, sources), page(gateway, token="a-token-of-a-machine") as it:
        await it.answer("SUBSCRIBE", 1, {"sqls": ["SELECT * FROM orders"]})
        assert (await it.answer("SUBSCRIBE", 2, {"sqls": ["SELECT * FROM prices"]}, "nonsense"))[0] == "ERROR"
        await sources["orders"].publish([b"still here"])
        assert (await it.hear())["correlationId"] == 1
        assert (await it.answer("LOGIN", 3, {"user": "ann", "password": "right"}))[0] == "SUCCESS"
        assert {each.identity.name for each in gateway.gateway.connections} == {"ann"}


async def test_logging_in_over_http() -> None:
    async with running() as (gateway, _):
        status, headers, token = await request(
            gateway, "POST", "/api/login", json.dumps({"user": "ann", "password": "right"})
        )
        assert (status, headers["content-type"].split(";")[0]) == (200, "text/plain")
        assert token.isascii()
        assert b"\n" not in token
        status, headers, body = await request(
            gateway, "GET", "/api/auth", headers=[("X-Kafka-Lenses-Token", token.decode())]
        )
        assert (status, headers["content-type"]) == (200, "application/json")
        assert json.loads(body) == {"token": token.decode(), "user": "ann", "roles": ["reader"]}
        wrongs: Sequence[object] = ({"user": "ann", "password": "wrong"}, {"user": "ann"}, [])
        for wrong in wrongs:
            status, _, body = await request(gateway, "POST", "/api/login", json.dumps(wrong))
            assert (status, body) == (401, b"unauthorized")
        for shown in ([("X-Kafka-Lenses-Token", "wrong-token-of-nobody")], []):
            status, _, body = await request(gateway, "GET", "/api/auth", headers=shown)
            assert (status, body) == (401, b"unauthorized")


async def request(
    gateway: GatewayUnderTest,
    method: str,
    path: str,
    body: str = "",
    headers: Sequence[tuple[str, str]] = (),
) -> tuple[int, dict[str, str], bytes]:
    async with await gateway.connect() as stream:
        lines = [f"{method} {path} HTTP/1.1", "Host: x", "Connection: close", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers]
        status, answered, rest = await Client(stream).request("\r\n".join([*lines, "", body]).encode())
        while more := await stream.receive_some(4096):
            rest += more
        return status, answered, rest


@pytest.mark.parametrize(
    ("opcode", "size", "expected"),
    [(TEXT, 1_048_576, "INVALIDREQUEST"), (TEXT, 1_048_577, 1009), (BINARY, 100, 1003)],
)
async def test_a_message_of_1_mib_passes_and_one_more_byte_or_a_binary_one_ends_it(
    opcode: int, size: int, expected: object
) -> None:
    request = json.dumps({"type": "PUBLISH", "correlationId": 1, "content": ""}).encode()
    async with running() as (gateway, _), page(gateway, token="a-token-of-a-machine") as it:
        await it.client.send(frame(opcode, request.ljust(size)))
        if isinstance(expected, int):
            assert (await it.client.over()).code == expected
            return
        assert (await it.hear())["type"] == expected
        assert await it.answer("SUBSCRIBE", 2, {"sqls": ["SELECT * FROM orders"]}) == ("SUCCESS", "orders")


@pytest.mark.parametrize("client_id", ["", "x" * 256, "a/b"])
async def test_ids_of_clients_that_are_none(client_id: str) -> None:
    async with running() as (gateway, _), await gateway.connect() as stream:
        assert (await Client(stream).request(upgrade(f"/api/kafka/ws/{client_id}")))[0] == 404


async def test_connections_of_one_client_id_coexist_and_each_gets_everything() -> None:
    token = "a-token-of-a-machine"
    async with (
        running() as (gateway, sources),
        page(gateway, token=token) as a,
        page(gateway, token=token) as b,
    ):
        for each in (a, b):
            await each.answer("SUBSCRIBE", 1, {"sqls": ["SELECT * FROM orders"]})
        await sources["orders"].publish([b"x"])
        assert (await a.hear())["content"] == (await b.hear())["content"]
        (first, second) = gateway.gateway.connections
        assert (first.dialect, second.dialect) == ("lenses_v1", "lenses_v1")
