"""Lenses SQL v2 over a real socket: who may read what, and what becomes of that while a statement runs."""

from __future__ import annotations

import json
import random
from contextlib import AsyncExitStack, suppress

import pytest
import trio
from structlog.typing import EventDict

from tests.edge.lenses_sql_world import COUNT, RECORDS, world
from tests.edge.test_lenses_sql import PATH, hear, kinds, rest, values
from tests.edge.wall import Wall
from tests.edge.wire import BINARY, TEXT, Over, connect, frame

# --- who may what ----------------------------------------------------------------------------------

UNKNOWN = "no such topic: "


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("sql", [RECORDS, COUNT, "SELECT n FROM Orders LIMIT 1"])
@pytest.mark.parametrize(
    ("who", "words"),
    [
        ("nobody", UNKNOWN),
        ("historian", UNKNOWN),
        ("listener", "not allowed"),
        ("reader", None),
        ("both", None),
    ],
)
async def test_rights(who: str, words: str | None, sql: str, live: bool) -> None:
    async with world() as there:
        await there.sources["orders"].publish([b'{"n":1}', b'{"n":2}'])
        async with there.asking(sql, who, live=live) as client:
            first = await hear(client)
            assert isinstance(first, dict)
            if words is None:
                assert first["type"] == "METADATA"
                return
            assert first["type"] == "ERROR"
            assert first["data"].startswith(words), first
            assert await rest(client) == []
        for table in ("secrets", "nothing"):
            for text in (RECORDS.replace("Orders", table), COUNT.replace("Orders", table)):
                (error,) = await there.executed(text, who)
                place = text.index(table) + 1
                assert error["data"] == f"{UNKNOWN}`{table}` (at character {place})"
        assert there.engine.made == 0


async def test_an_engine_answers_those_who_may() -> None:
    async with world() as there:
        heard = await there.executed(COUNT)
        assert heard[0] == {"type": "METADATA", "data": {"fields": []}}
        assert [row["data"] for row in heard[1:]] == [{"value": 1, "rownum": n} for n in range(3)]
        assert len({row["rowId"] for row in heard[1:]}) == 3
        assert there.engine.made == 1


async def test_an_engine_that_hangs_is_stopped_with_its_client_or_its_time() -> None:
    async with world() as there:
        there.engine.hangs = True
        async with there.asking(COUNT) as client:
            assert [await hear(client) for _ in range(4)]
            assert there.engine.running == 1
        await there.engine.wait_running(0)
        heard = await there.executed(f"SET max.query.time=300ms; {COUNT}")
        assert heard[-1]["data"]["reason"]["type"] == "MAX_QUERY_TIME"
        await there.engine.wait_running(0)


# --- what stands between ---------------------------------------------------------------------------

VALUES = [b'{"n":"open"}', b'{"n":"secret"}', b'{"n":"withheld"}', b"{withheld", b"{secret", b'"withheld"']


@pytest.mark.parametrize("live", [False, True])
async def test_what_is_masked_and_withheld_is_nowhere(live: bool) -> None:
    async with world("guest") as there:
        await there.sources["orders"].publish(VALUES)
        all_of_it = await there.executed(RECORDS, stats=60_000)
        assert kinds(all_of_it) == [
            "METADATA", *["RECORD"] * 3, *["BADRECORD"] * 2, "RECORD", "STATS"
        ]  # fmt: skip
        limit = " LIMIT 2" if live else ""
        heard = await there.executed(RECORDS + limit, "guest", live=live, stats=60_000)
        assert values(heard) == [{"n": "open"}, {"n": "***"}]
        bad = [message["data"]["metadata"]["offset"] for message in heard if message["type"] == "BADRECORD"]
        assert bad == ([] if live else [4])
        stats = heard[-1]["data"]
        (of_source,) = stats["sourcesStats"].values()
        counted = stats["recordsScanned"], stats["badRecordsTotal"], stats["results"], stats["bytesRead"]
        masked = [b'{"n":"open"}', b'{"n":"***"}', b"{***"][: 2 if live else 3]
        assert counted == (len(masked), len(bad), 2, sum(map(len, masked)))
        assert of_source["0"]["recordsScanned"] == len(masked)
        assert of_source["0"]["end"] == (1 if live else 4), "the last that the guest may see"
        assert [m["data"]["metadata"]["__valuesize"] for m in heard if m["type"] == "RECORD"] == [12, 11]
        by_value = await there.executed("SELECT n FROM Orders WHERE n LIKE '%secret%'", "guest")
        assert values(by_value) == [], "a condition sees no more than its client"
        (refused,) = await there.executed(COUNT, "guest")
        assert refused["type"] == "ERROR", "an engine would read around it"
        assert there.engine.made == 0


async def test_two_identities_on_one_source() -> None:
    async with (
        world("guest") as there,
        there.asking(RECORDS, live=True) as one,
        there.asking(RECORDS, "guest", live=True) as two,
    ):
        assert [(await hear(each)) for each in (one, two)]
        await there.sources["orders"].publish(VALUES[:3])
        seen = [[await hear(one) for _ in range(3)], [await hear(two) for _ in range(2)]]
        assert [values(each) for each in seen] == [  # type: ignore[arg-type]
            [{"n": "open"}, {"n": "secret"}, {"n": "withheld"}],
            [{"n": "open"}, {"n": "***"}],
        ]
        # With one more option the bytes differ, for the one who has chosen that.
        async with there.asking(f"SET format.timestamp=false; {RECORDS}", "guest", live=True) as third:
            heard = [await hear(third) for _ in range(3)]
            assert values(heard[1:]) == values(seen[1])  # type: ignore[arg-type]


# --- reloads ---------------------------------------------------------------------------------------

READER = "reader: {sources: [orders], actions: [subscribe, replay]"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([(READER, READER.replace("orders", "secrets"))], "Orders: unauthorized: "),
        ([("  - {type: scripted, id: orders, lenses: {topic: Orders}}\n", "")], "Orders: removed: "),
        ([("id: orders, lenses", "id: orders, note: another, lenses")], "Orders: altered: "),
    ],
)
async def test_a_reload_that_takes_away_what_it_reads(changes: list[tuple[str, str]], words: str) -> None:
    async with world() as there:
        await there.sources["orders"].publish([b"1"])
        async with there.asking(RECORDS, live=True, stats=60_000) as client:
            assert [await hear(client), await hear(client)]
            await there.reload(*changes)
            heard = await rest(client)
            assert kinds(heard) == ["STATS", "ERROR"]
            assert heard[-1]["data"].startswith(words), heard


async def test_a_reload_that_takes_away_the_past() -> None:
    """Who has had it goes on with what comes."""
    async with world() as there:
        await there.sources["orders"].publish([b"1"])
        async with there.asking(RECORDS, live=True) as client:
            assert [await hear(client), await hear(client)]
            await there.reload((READER, READER.replace(", replay", "")))
            await there.sources["orders"].publish([b"2"])
            assert values([await hear(client)]) == [2]  # type: ignore[list-item]
            (error,) = await there.executed(RECORDS)
            assert error["data"].startswith("not allowed: ")


async def test_a_reload_that_calls_the_table_otherwise() -> None:
    async with world() as there:
        await there.sources["orders"].publish([b"1"])
        await there.reload(("topic: Orders", "topic: Others"))
        await there.sources["orders"].publish([b"1"])
        (error,) = await there.executed(RECORDS)
        assert error["data"] == "no such topic: `Orders` (at character 15)"
        assert kinds(await there.executed("SELECT * FROM Others"))[0] == "METADATA"


async def test_a_reload_that_puts_an_interceptor_before_it() -> None:
    async with world() as there, there.asking(RECORDS, live=True) as client:
        assert isinstance(await hear(client), dict)
        there.mine.guests.add("reader")
        await there.reload()
        await there.sources["orders"].publish(VALUES[1:3] + VALUES[:1])
        seen = [await hear(client), await hear(client)]
        assert values(seen) == [{"n": "***"}, {"n": "open"}]  # type: ignore[arg-type]


@pytest.mark.slow
async def test_a_token_that_expires(wall: Wall) -> None:
    async with world() as there:
        there.mine.expires_at = wall.now + 1.5
        await there.sources["orders"].publish([b"1"])
        async with there.asking(RECORDS, token="short", live=True) as client:
            assert [await hear(client), await hear(client)]
            wall.now = there.mine.expires_at
            error, end, code = await hear(client), await hear(client), await hear(client)
        assert error == {"type": "ERROR", "data": "the credentials have expired"}
        assert (end, code) == ({"type": "END"}, 4402)
        there.mine.expires_at = wall.now + 60
        assert kinds(await there.executed(RECORDS, token="short")) == ["METADATA", "RECORD"]


async def test_a_gateway_that_drains() -> None:
    async with world() as there, there.asking(RECORDS, live=True) as client:
        assert isinstance(await hear(client), dict)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(there.gateway.stop)
            error, end, code = await hear(client), await hear(client), await hear(client)
        assert isinstance(error, dict)
        assert error["data"].startswith("the gateway is restarted; come back in ")
        assert (end, code) == ({"type": "END"}, 1012)


# --- the handshake and the message -----------------------------------------------------------------


@pytest.mark.parametrize("path", [PATH, PATH + "?", PATH + "?x=1"])
async def test_the_path(path: str) -> None:
    async with world() as there, connect(there.gateway, path) as client:
        await client.send(frame(TEXT, json.dumps({"token": "the-token-of-reader", "sql": RECORDS}).encode()))
        assert kinds(await rest(client)) == ["METADATA"]


@pytest.mark.parametrize(("size", "expected"), [(65_536, None), (65_537, 1009)])
async def test_the_largest_message(size: int, expected: int | None) -> None:
    async with world() as there, connect(there.gateway, PATH) as client:
        message = json.dumps({"token": "the-token-of-reader", "sql": RECORDS})
        await client.send(frame(TEXT, message[:-1].encode() + b" " * (size - len(message)) + b"}"))
        if expected is None:
            assert kinds(await rest(client)) == ["METADATA"]
        else:
            assert await hear(client) == expected


@pytest.mark.parametrize("opcode", [TEXT, BINARY])
async def test_a_message_that_is_none(opcode: int) -> None:
    async with world() as there, connect(there.gateway, PATH) as client:
        await client.send(frame(opcode, b"[" * 60_000))
        error, end, code = await hear(client), await hear(client), await hear(client)
        assert isinstance(error, dict)
        assert (error["type"], end) == ("ERROR", {"type": "END"})
        assert code == (1000 if opcode == TEXT else 1003)


@pytest.mark.parametrize("header", [None, "the-token-of-reader"])
async def test_who_says_nothing(header: str | None) -> None:
    headers = [] if header is None else [("Authorization", f"Bearer {header}")]
    async with world(login_ms=200) as there, connect(there.gateway, PATH, headers) as client:
        over = await client.over()
        assert isinstance(over, Over)
        assert over.code == 4401


async def test_a_statement_outlives_the_time_for_its_message() -> None:
    message = {"token": "the-token-of-reader", "sql": RECORDS, "live": True}
    asking = frame(TEXT, json.dumps(message).encode())
    async with world(login_ms=200) as there, connect(there.gateway, PATH, early=asking) as client:
        assert isinstance(await hear(client), dict)
        async with connect(there.gateway, PATH) as other:
            await other.over()
        await there.sources["orders"].publish([b"1"])
        assert values([await hear(client)]) == [1]  # type: ignore[list-item]


@pytest.mark.slow
async def test_who_reads_nothing_gives_its_place_back_when_its_time_is_up() -> None:
    async with world(queries=1) as there:
        for _ in range(30):
            await there.sources["orders"].publish([b'"' + b"x" * 500_000 + b'"'])
        message = {"token": "the-token-of-reader", "sql": f"SET max.query.time=1s; {RECORDS}", "live": True}
        async with connect(there.gateway, PATH, receive_buffer=4096) as stalled:
            await stalled.send(frame(TEXT, json.dumps(message).encode()))
            there_is_room = "SELECT n FROM Orders WHERE _offset < 0"
            while kinds(await there.executed(there_is_room)) != ["ERROR"]:
                pass  # the message has not come yet
            with trio.fail_after(10):
                while kinds(await there.executed(there_is_room)) == ["ERROR"]:
                    pass


@pytest.mark.parametrize("token", ["the-token-of-reader", "a-token-that-nobody-has"])
@pytest.mark.parametrize("sql", [RECORDS, COUNT, "SELECT", 7])
async def test_tokens_are_in_no_log_and_no_answer(
    token: str, sql: object, log_lines: list[EventDict], capsys: pytest.CaptureFixture[str]
) -> None:
    async with world() as there:
        message = json.dumps({"token": token, "sql": sql}).encode()
        for header in ([], [("Authorization", "Bearer the-token-of-guest")]):
            async with connect(there.gateway, PATH, header) as client:
                await client.send(frame(TEXT, message))
                assert token not in json.dumps(await rest(client))
    assert log_lines, "what is looked at"
    assert token not in repr(log_lines)
    assert token not in "".join(capsys.readouterr())


async def test_clients_that_come_and_go_while_everything_changes_leave_nothing_behind() -> None:
    """They vanish at any moment, say too much, or are told that their source is another one."""
    statements = [
        RECORDS,
        COUNT,
        f"{RECORDS} LIMIT 2",
        "SELECT n FROM Orders WHERE n > 1",
        "SELECT * FROM nothing",
    ]
    async with world("guest", queries=6) as there:

        async def client(number: int) -> None:
            chance = random.Random(number)
            who = chance.choice(["reader", "guest", "listener", "nobody", "stranger"])
            members = {
                "sql": chance.choice(statements),
                "live": chance.random() < 0.7,
                "stats": chance.choice([0, 250]),
            }
            message = frame(TEXT, json.dumps({"token": f"the-token-of-{who}", **members}).encode())
            async with connect(there.gateway, PATH, receive_buffer=4096 if number % 3 else None) as one:
                await one.send(message * chance.choice([1, 1, 1, 2]))
                with suppress(Over):
                    for _ in range(chance.randrange(6)):
                        with trio.move_on_after(0.05):
                            await one.frame()

        async def change() -> None:
            note = "orders"
            for turn in range(12):
                await there.sources["orders"].publish([b'{"n":%d}' % turn, b"{", b'"' + b"x" * 50_000 + b'"'])
                if turn % 4 == 3:
                    await there.reload((f"id: {note}", f"id: orders, note: turn{turn}"))
                    note = f"orders, note: turn{turn}"

        async with trio.open_nursery() as nursery:
            nursery.start_soon(change)
            for number in range(60):
                nursery.start_soon(client, number)
        with trio.fail_after(5):
            while True:  # all places are free again
                async with AsyncExitStack() as stack:
                    six = [
                        await stack.enter_async_context(there.asking(RECORDS, live=True)) for _ in range(6)
                    ]
                    heard = [await hear(each) for each in six]
                    if all(isinstance(each, dict) and each["type"] == "METADATA" for each in heard):
                        break
        await there.engine.wait_running(0)
