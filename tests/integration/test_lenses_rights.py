"""Who may do what, over both protocols of Lenses: `config/lenses.yml` as it is, on a real broker."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trio
import yaml
from argon2.low_level import Type, hash_secret

from kiwi_demo.broker import Broker
from tests.edge.admin import Samples, ask, samples
from tests.integration.gateway import GatewayProcess, gateway
from tests.integration.test_lenses import WITHIN, Client, answer, in_python, records, request, select
from tests.integration.test_lenses_sql import executed
from tests.topics import Record, Topics

pytestmark = pytest.mark.integration

EXAMPLE = Path(__file__).parents[2] / "config" / "lenses.yml"
PASSWORDS = {"ann": "read me", "bob": "write it", "eve": "show me", "root": "rule it"}
"""Ann (Read) and Bob (Write) are those of the example; it has the roles of Eve (NoData) and Root (Admin)."""
ADDED = {"eve": "no-data", "root": "admin"}

OK = "SUCCESS"
NO_RIGHT = "not allowed"
READ_ONLY = "the configuration does not say `publish: true`"
LOG_IN = "log in first: LOGIN, or a token in authToken"
NO_TOKEN = "a token is needed: in the message, or in the header Authorization"


def no(table: str) -> Sequence[str]:
    """Return what is said of a table that there is not, and of one that may not be read."""
    unknown = f"no such topic: `{table}`"
    there = f"{unknown} (at character 15)"
    return unknown, f"sqls[0]: {there}", unknown, there


MATRIX: Mapping[tuple[str, str], Sequence[str]] = {
    # user, table             COMMIT  SUBSCRIBE  PUBLISH    SELECT (v2)
    ("nobody", "orders"):    (LOG_IN, LOG_IN,    LOG_IN,    NO_TOKEN),
    ("ann",    "orders"):    (OK,     OK,        NO_RIGHT,  OK),
    ("ann",    "prices"):    (OK,     OK,        NO_RIGHT,  OK),
    ("ann",    "nowhere"):   no("nowhere"),
    ("bob",    "orders"):    (OK,     OK,        OK,        OK),
    ("bob",    "prices"):    (OK,     OK,        READ_ONLY, OK),
    ("bob",    "nowhere"):   no("nowhere"),
    ("eve",    "orders"):    no("orders"),
    ("eve",    "prices"):    no("prices"),
    ("eve",    "nowhere"):   no("nowhere"),
    ("root",   "orders"):    (OK,     OK,        OK,        OK),
    ("root",   "prices"):    (OK,     OK,        READ_ONLY, OK),
    ("root",   "nowhere"):   no("nowhere"),
}  # fmt: skip
METRICS = {"ann": 403, "bob": 403, "eve": 403, "root": 200}
"""What the address for operators says to each of them."""


@dataclass
class World:
    """A gateway, and what is in its tables. name: of every client, so that their groups are new ones.
    written: keys and values by table; the place in the list is the offset."""

    running: GatewayProcess
    admin: str
    name: str
    topics: Topics
    topic_of: Mapping[str, str]
    written: dict[str, list[tuple[str, str]]] = field(default_factory=lambda: {"orders": [], "prices": []})

    async def write(self, table: str, *values: str) -> None:
        """Write to the topic without the gateway."""
        await self.topics.produce(self.topic_of[table], [Record(each.encode(), b"k") for each in values])
        self.written[table] += [("k", each) for each in values]

    async def row(self, page: Client, user: str, table: str, token: str | None) -> Sequence[str]:
        """Ask for everything, and return what is said to it."""
        value = json.dumps({"by": user})
        return (
            await self.said(page, "COMMIT", {"commits": [{"topic": table, "partition": 0, "offset": 0}]}),
            await self.said(page, "SUBSCRIBE", select(table)),
            await self.said(page, "PUBLISH", {"topic": table, "key": user, "value": value}),
            await self.selected(table, token),
        )

    async def said(self, page: Client, kind: str, content: dict[str, Any]) -> str:
        """Ask over v1. What comes with a SUCCESS is asserted."""
        await page.send(request(kind, 7, content))
        while (heard := await page.hear())["type"] == "KAFKAMSG":
            page.early.append(heard)
        assert heard["correlationId"] == 7
        said: str = heard["content"]
        if heard["type"] != OK:
            assert heard["type"] == "ERROR"
            return said
        if kind == "PUBLISH":
            table = content["topic"]
            place = {"topic": table, "partition": 0, "offset": len(self.written[table])}
            assert json.loads(said) == place
            self.written[table].append((content["key"], content["value"]))
        return OK

    async def selected(self, table: str, token: str | None) -> str:
        """Execute a SELECT over v2. It gives exactly what has been written, or nothing."""
        sql = f"SELECT * FROM {table}"  # noqa: S608  (no database)
        shown: dict[str, Any] = {} if token is None else {"token": token}
        heard = await executed(self.running.address, sql, **shown)
        if heard[0]["type"] == "ERROR":
            (error,) = heard
            said: str = error["data"]
            return said
        assert [each["type"] for each in heard[1:]] == ["RECORD"] * len(self.written[table])
        found = [each["data"] for each in heard[1:]]
        assert [each["metadata"]["offset"] for each in found] == list(range(len(found)))
        values = [json.loads(value) for _, value in self.written[table]]
        assert [each["value"] for each in found] == values
        assert [each["key"] for each in found] == [key for key, _ in self.written[table]]
        return OK


def environment(broker: Broker, topic_of: Mapping[str, str]) -> dict[str, str]:
    """Say what is otherwise than in the example: the broker, ports, topics, and two users more."""
    users = yaml.safe_load(EXAMPLE.read_text())["tokens"]["users"]
    for name, role in ADDED.items():
        made = hash_secret(PASSWORDS[name].encode(), b"a fixed salt for tests", 1, 8, 1, 32, Type.ID).decode()
        users.append({"name": name, "password_hash": made, "roles": [role]})
    return {
        "KAFKA": broker.bootstrap,
        "SESSION_KEY": "a key of thirty-two bytes or more",
        "KIWI_GW_SERVER__ADDRESS": "127.0.0.1:0",
        "KIWI_GW_SERVER__ADMIN_ADDRESS": "127.0.0.1:0",
        "KIWI_GW_SOURCES__0__ID": "orders",
        "KIWI_GW_SOURCES__0__TOPIC": topic_of["orders"],
        "KIWI_GW_SOURCES__1__TOPIC": topic_of["prices"],
        "KIWI_GW_TOKENS__USERS": json.dumps(users),
    }


@asynccontextmanager
async def world(
    broker: Broker, topics: Topics, new_topic: Callable[[], str], folder: Path
) -> AsyncIterator[World]:
    """Run the example, with two records in each of its topics."""
    topic_of = {table: await topics.create(new_topic()) for table in ("orders", "prices")}
    async with gateway(folder, EXAMPLE.read_text(), env=environment(broker, topic_of)) as running:
        admin = (await running.logged("gateway listens"))["admin"]
        there = World(running, admin, topic_of["orders"], topics, topic_of)
        for table in topic_of:
            await there.write(table, f'{{"of":"{table}"}}', "[1]")
        yield there


async def test_users_may_do_what_their_roles_say_and_are_told_why_they_may_not_do_the_rest(
    broker: Broker, topics: Topics, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    said: dict[tuple[str, str], Sequence[str]] = {}
    pages: dict[str, Client] = {}
    tokens: dict[str, str] = {}
    async with world(broker, topics, new_topic, tmp_path) as there, AsyncExitStack() as stack:
        address = there.running.address
        async with in_python(address, there.name) as nobody:
            said["nobody", "orders"] = await there.row(nobody, "nobody", "orders", None)
        for user, password in PASSWORDS.items():
            page = pages[user] = await stack.enter_async_context(in_python(address, there.name))
            wrong = {"user": user, "password": f"not {password}"}
            assert await there.said(page, "LOGIN", wrong) == "the user or the password is wrong"
            token = tokens[user] = await answer(page, "LOGIN", 1, {"user": user, "password": password})
            for table in ("orders", "prices", "nowhere"):
                said[user, table] = await there.row(page, user, table, token)
        assert said == MATRIX
        for table in there.topic_of:
            await there.write(table, '"the last"')
        for user, page in pages.items():
            await check_read(there, page, [table for table in there.topic_of if said[user, table][1] == OK])
        await check_mistakes(there, pages["bob"])
        heads = {user: {"Authorization": f"Bearer {token}"} for user, token in tokens.items()}
        asked = {user: await ask(there.admin, "/metrics", headers=heads[user]) for user in heads}
        assert {user: status for user, (status, *_) in asked.items()} == METRICS
        check_metrics(samples(asked["root"][2].decode()))


async def check_read(there: World, page: Client, tables: Sequence[str]) -> None:
    """Check that a client has got exactly the records of these tables, from the one behind its commit."""
    wanted = {
        table: [(offset, *each) for offset, each in enumerate(there.written[table]) if offset > 0]
        for table in tables
    }
    found: dict[str, list[tuple[int, str, str]]] = {table: [] for table in tables}
    with trio.fail_after(WITHIN):
        heard = await records(page, sum(map(len, wanted.values())))
    for each in heard:
        found[each["topic"]].append((each["offset"], each["key"], each["value"]))
    assert found == wanted
    assert await answer(page, "UNSUBSCRIBE", 9, {"topics": list(there.topic_of)}) == ",".join(tables)
    assert not page.early, "nothing beside that"


async def check_mistakes(there: World, page: Client) -> None:
    """Check that what a client may do, but cannot be done, is an error, too."""
    nowhere = {"topic": "orders", "partition": 9, "value": "1"}
    assert (await there.said(page, "PUBLISH", nowhere)).startswith("not written: ")
    beyond = {"commits": [{"topic": "orders", "partition": 0, "offset": 1_000}]}
    assert (await there.said(page, "COMMIT", beyond)).startswith("orders: ")


def check_metrics(found: Samples) -> None:
    """Check what an operator sees of all that."""

    def of(name: str, *labels: str) -> dict[tuple[str, ...], float]:
        samples = {of_it: value for (each, of_it), value in found.items() if each == f"kiwigw_{name}"}
        return {tuple(dict(each)[label] for label in labels): value for each, value in samples.items()}

    assert of("produced_records_total", "source", "result") == {
        ("orders", "written"): 2,
        ("orders", "not_written"): 1,
    }
    assert of("produce_duration_seconds_count", "source") == {("orders",): 3}
    assert of("commits_total", "source", "result") == {
        ("orders", "ok"): 3,
        ("orders", "refused"): 1,
        ("price-changes", "ok"): 3,
    }
    users, statements = len(PASSWORDS), len(MATRIX)
    assert of("auth_total", "method", "result") == {
        ("head", "missing"): 1 + users + statements,  # every connection
        ("head", "accepted"): users,  # for the metrics
        ("password", "refused"): users,
        ("password", "accepted"): users,
        ("token", "missing"): 1,  # nobody's statement
        ("token", "accepted"): statements - 1,
    }
