"""What is known of a registry's ids, how it is asked for more, and what that may cost a topic."""

from __future__ import annotations

import gc
from collections.abc import Sequence

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from kiwi_gw.api import SCHEMA_COLUMNS, Backoff, Batch, Decode, Positions, RegisteredSchema
from kiwi_gw.query.avro import schema_head
from kiwi_kafka.registry.client import RegistryClient
from kiwi_kafka.registry.documents import NoSchema, RegistryUnavailable
from kiwi_kafka.registry.refusal_budget import MOST, MOST_WHEN_LATE, RefusalBudget
from kiwi_kafka.registry.schema_cache import (
    MOST_REFUSALS,
    MOST_SCHEMA_BYTES,
    MOST_SCHEMAS,
    UNKNOWN_SECONDS,
    UNUSABLE_SECONDS,
    SchemaCache,
)
from kiwi_kafka.registry.schema_registry import AWAY, SchemaRegistry
from kiwi_kafka.registry.source_schemas import SourceSchemas
from kiwi_kafka.settings import RegistrySettings
from tests.plugins.kafka.registry_server import V1, RegistryServer

UNKNOWN = NoSchema("unknown", unknown=True)
UNUSABLE = NoSchema("unusable")


def registry_of(server: RegistryServer, deadline: float = 10.0) -> SchemaRegistry:
    client = RegistryClient(RegistrySettings(url=server.url), deadline)
    return SchemaRegistry(client, Backoff(0.001, 0.01))


class Asking:
    """A source that asks: what it was told while it waited, and what it may ask in all."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self.told: list[str] = []
        self._registry = registry
        self._budget = RefusalBudget()

    async def find(self, *schema_ids: int) -> list[int]:
        budget = self._budget.begin(trio.current_time())
        with trio.fail_after(100):
            found = await self._registry.find(schema_ids, budget, self.told.append)
        assert all(schema.id == schema_id for schema_id, schema in found.items())
        return sorted(found)


# --- the cache --------------------------------------------------------------------------------


def schema(schema_id: int, size: int = 10) -> RegisteredSchema:
    return RegisteredSchema(schema_id, '"int"'.ljust(size))


def test_refusals_are_forgotten_in_time() -> None:
    cache = SchemaCache()
    cache.put(1, UNKNOWN, now=100)
    cache.put(2, UNUSABLE, now=100)
    assert (cache.get(1, 100), cache.get(2, 100), cache.get(3, 100)) == (UNKNOWN, UNUSABLE, None)
    assert cache.get(1, 100 + UNKNOWN_SECONDS) is None
    assert cache.get(2, 100 + UNUSABLE_SECONDS - 1) is UNUSABLE
    assert cache.get(2, 100 + UNUSABLE_SECONDS) is None
    found = schema(1)
    cache.put(1, found, now=120)
    assert cache.get(1, 10**9) is found
    for n in range(MOST_REFUSALS + 5):
        cache.put(10 + n, UNKNOWN, now=200)
    assert cache.get(14, 200) is None
    assert cache.get(15, 200) is UNKNOWN


def test_those_that_were_used_last_are_kept() -> None:
    cache = SchemaCache()
    for n in range(MOST_SCHEMAS):
        cache.put(n, schema(n), now=0)
    assert cache.get(0, 0) is not None
    cache.put(MOST_SCHEMAS, schema(MOST_SCHEMAS), now=0)
    gc.collect()
    assert len(cache) == MOST_SCHEMAS
    assert cache.get(0, 0) is not None
    assert cache.get(1, 0) is None


def test_large_ones_take_the_place_of_many() -> None:
    cache, half = SchemaCache(), MOST_SCHEMA_BYTES // 2
    for n in (1, 2, 3):
        cache.put(n, schema(n, half), now=0)
    gc.collect()
    assert [cache.get(n, 0) is not None for n in (1, 2, 3)] == [False, True, True]
    assert cache.bytes == MOST_SCHEMA_BYTES
    cache.put(4, schema(4, 2 * MOST_SCHEMA_BYTES), now=0)
    assert len(cache) == 1
    assert cache.get(4, 0) is not None
    cache.put(4, schema(4), now=0)
    assert cache.bytes == 10


def test_one_that_a_batch_still_has_is_not_made_twice() -> None:
    cache, used = SchemaCache(), schema(1)
    cache.put(1, used, now=0)
    for n in range(2, MOST_SCHEMAS + 10):
        cache.put(n, schema(n), now=0)
    assert cache.get(1, 0) is used
    assert cache.bytes == 10 * MOST_SCHEMAS


# --- what made-up ids may cost ----------------------------------------------------------------


def test_a_batch_asks_for_a_hundred_that_nobody_knows_and_gets_ten_a_second_back() -> None:
    source = RefusalBudget()
    for now, most in ((1000.0, MOST), (1000.5, 5), (1000.5, 0), (1001.5, 10), (2000.0, MOST)):
        batch = source.begin(now)
        for _ in range(most):
            assert not batch.spent(now)
            batch.refused(now)
        assert batch.spent(now)


def test_a_batch_that_has_taken_two_seconds_asks_for_eight_at_most() -> None:
    batch = RefusalBudget().begin(0)
    for _ in range(MOST_WHEN_LATE):
        batch.refused(1)
    assert not batch.spent(1.9)
    assert batch.spent(2)
    patient = RefusalBudget().begin(0)
    patient.refused(1)
    assert not patient.spent(60)  # ids that the registry knows are asked for, however long that takes


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(0, 150)), max_size=12))
def test_no_more_than_that_over_any_time(batches: Sequence[tuple[float, int]]) -> None:
    source, now, refused = RefusalBudget(), 0.0, 0
    for pause, wanted in batches:
        now += pause
        batch = source.begin(now)
        for _ in range(wanted):
            if batch.spent(now):
                break
            batch.refused(now)
            refused += 1
    assert refused <= MOST + 10 * now


# --- asking -----------------------------------------------------------------------------------


async def test_each_id_is_asked_for_once(server: RegistryServer) -> None:
    for n in range(30):
        server.add(n, V1)
    registry = registry_of(server)
    first, second = Asking(registry), Asking(registry)
    server.gate.clear()
    found: dict[str, list[int]] = {}
    async with trio.open_nursery() as nursery:

        async def ask(name: str, asking: Asking, *schema_ids: int) -> None:
            found[name] = await asking.find(*schema_ids)

        nursery.start_soon(ask, "first", first, *range(25))
        nursery.start_soon(ask, "second", second, *range(5, 30))
        await trio.to_thread.run_sync(server.asked.wait, 5)
        await wait_all_tasks_blocked()
        server.gate.set()
    assert found == {"first": [*range(25)], "second": [*range(5, 30)]}
    assert sorted(server.requests) == sorted(f"/schemas/ids/{n}" for n in range(30))
    assert server.most_at_once <= 8
    assert await first.find(*range(30)) == [*range(30)]
    assert len(server.requests) == 30
    assert set(first.told) == {""}


async def test_an_id_that_is_registered_later(server: RegistryServer) -> None:
    registry = registry_of(server)
    asking = Asking(registry)
    server.add(1, V1)
    with capture_logs() as logs:
        assert await asking.find(1, 2) == [1]
        assert await asking.find(2, 3) == []
    assert [entry["event"] for entry in logs] == ["schema id is unknown: its records cannot be read"]
    server.add(2, V1)
    assert await asking.find(2) == []  # it is not asked for again at once
    registry.cache.put(2, UNKNOWN, trio.current_time() - UNKNOWN_SECONDS)
    assert await asking.find(2) == [2]
    assert server.requests.count("/schemas/ids/2") == 2


async def test_what_cannot_be_used_is_said_once(server: RegistryServer) -> None:
    asking = Asking(registry_of(server))
    server.add(1, "syntax = ...", schemaType="PROTOBUF")
    with capture_logs() as logs:
        for _ in range(3):
            assert await asking.find(1) == []
    assert [(entry["event"], entry["schema_id"], entry["reason"]) for entry in logs] == [
        ("schema cannot be used: its records cannot be read", 1, "its schema is no AVRO but 'PROTOBUF'")
    ]


@pytest.mark.parametrize("how", ["down", "500", "401", "no JSON"])
async def test_a_registry_that_is_away_is_waited_for(server: RegistryServer, how: str) -> None:
    server.add(1, V1)
    asking = Asking(registry_of(server))
    troubles = {"500": (500, b"{}"), "401": (401, b"{}"), "no JSON": (200, b"<html>")}
    server.trouble = troubles.get(how)
    if how == "down":
        server.down()
    found: list[int] = []
    with capture_logs() as logs:
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                found.extend(await asking.find(1, 2))

            nursery.start_soon(ask)
            with trio.fail_after(10):
                while asking.told != [AWAY]:  # noqa: ASYNC110
                    await trio.sleep(0.005)
                # Another one that comes meanwhile is told, too, and waits.
                late = Asking(registry_of(server))
                late._registry = asking._registry
                with trio.move_on_after(0.05) as scope:
                    await late.find(3)
            assert scope.cancelled_caught
            assert late.told == [AWAY]
            assert not found
            server.trouble = None
            if how == "down":
                server.up()
    assert found == [1]
    assert asking.told == [AWAY, "", ""]
    events = [entry["event"] for entry in logs]
    assert events[:2] == ["schema registry away", "schema registry back"]
    assert logs[0]["url"] == server.url


async def test_one_that_does_not_answer_in_time_is_away(server: RegistryServer) -> None:
    server.add(1, V1)
    server.gate.clear()
    asking = Asking(registry_of(server, deadline=0.1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(asking.find, 1)
        with trio.fail_after(10):
            while AWAY not in asking.told:  # noqa: ASYNC110
                await trio.sleep(0.005)
        server.gate.set()
    assert asking.told == [AWAY, "", ""]


class Scripted:
    """A registry that answers at once, or takes its time. asked: the ids, in order."""

    url = "scripted"

    def __init__(self, seconds: float = 0.0, known: frozenset[int] = frozenset()) -> None:
        self.asked: list[int] = []
        self.failing = 0
        self._seconds = seconds
        self._known = known

    async def schema(self, schema_id: int) -> RegisteredSchema | NoSchema:
        self.asked.append(schema_id)
        await trio.sleep(self._seconds)
        if self.failing:
            self.failing -= 1
            raise RegistryUnavailable("not now")
        return schema(schema_id) if schema_id in self._known else UNKNOWN


@pytest.mark.parametrize(("seconds", "most"), [(0.005, 0.1), (0.3, 2.4), (1.99, 4.0)])
async def test_made_up_ids_hold_up_a_batch_for_four_seconds_at_most(
    autojump_clock: MockClock, seconds: float, most: float
) -> None:
    client = Scripted(seconds, frozenset({7}))
    asking = Asking(SchemaRegistry(client))
    for batch in range(5):
        began = trio.current_time()
        made_up = range(10_000 * (batch + 1), 10_000 * (batch + 1) + 4_000)
        # One that many records have comes first.
        assert await asking.find(7, *made_up) == [7]
        assert trio.current_time() - began <= most
    assert len(client.asked) <= MOST + 8 * 5 + 10 * trio.current_time()


async def test_an_unknown_id_is_asked_for_again_ten_seconds_later(autojump_clock: MockClock) -> None:
    client = Scripted()
    asking = Asking(SchemaRegistry(client))
    asked = []
    for _ in range(23):
        assert await asking.find(1) == []
        asked.append(len(client.asked))
        await trio.sleep(1)
    assert asked == [1] * 10 + [2] * 10 + [3] * 3


class Reads:
    """History of two batches, whose records name the schemas 1 and 2."""

    def __init__(self) -> None:
        self._left = [1, 2]

    async def read(self, until: Positions) -> Batch:
        number = self._left.pop(0)
        return Batch({0: number}, [0], [number], {"value": [schema_head(number) + b"\2"]}, cost=1)


async def test_history_that_is_given_up_while_it_waits_goes_on_with_the_same_batch(
    autojump_clock: MockClock,
) -> None:
    client = Scripted(known=frozenset({1, 2}))
    client.failing = 5
    said: list[tuple[object, str]] = []
    schemas = SourceSchemas(
        SchemaRegistry(client), Decode(value="avro", registry=True), lambda *it: said.append(it)
    )
    reader = schemas.added_by(Reads())
    with trio.move_on_after(0.2) as scope:
        await reader.read({0: 10})
    assert scope.cancelled_caught
    assert said == [(reader, AWAY), (reader, "")], "who waits no longer is not told about it for ever"
    batches = [await reader.read({0: 10}) for _ in range(2)]
    assert [list(batch.offsets) for batch in batches] == [[1], [2]]
    found = [schema for batch in batches for schema in batch.columns[SCHEMA_COLUMNS["value"]]]
    assert [schema.id for schema in found if isinstance(schema, RegisteredSchema)] == [1, 2]


async def test_ids_that_the_registry_knows_are_all_asked_for(autojump_clock: MockClock) -> None:
    known = frozenset(range(500))
    client = Scripted(1.0, known)
    assert await Asking(SchemaRegistry(client)).find(*known) == [*known]
    assert trio.current_time() >= 60


async def test_while_it_is_away_it_is_asked_once_at_a_time_and_less_and_less(
    autojump_clock: MockClock,
) -> None:
    client = Scripted(0.0, frozenset(range(100)))
    client.failing = 10**9
    registry = SchemaRegistry(client)
    async with trio.open_nursery() as nursery:
        for n in range(20):
            nursery.start_soon(Asking(registry).find, n)
        await trio.sleep(19)
        assert len(client.asked) <= 8 + 15
        client.failing = 0
    assert registry.cache.get(19, trio.current_time()) is not None
