"""Lenses v1 for identities that do not see the same, or not for long."""

from __future__ import annotations

from contextlib import AsyncExitStack
from itertools import product
from typing import Any

import pytest

from tests.edge.lenses_sql_world import World, world
from tests.edge.test_lenses_v1 import Page, page
from tests.edge.wall import Wall
from tests.edge.wire import Over

SOME = 100


async def heard_records(client: Page) -> list[dict[str, Any]]:
    """Return the records of the next message. AssertionError if it has none."""
    heard = await client.hear()
    assert heard["type"] == "KAFKAMSG", heard
    records: list[dict[str, Any]] = heard["content"]
    return records


async def values_until(client: Page, offset: int) -> list[str]:
    """Return the values of all records up to the one at this offset."""
    records = await heard_records(client)
    while records[-1]["offset"] < offset:
        records += await heard_records(client)
    return [each["value"] for each in records]


async def write_and_read(there: World, client: Page, offsets: list[int], wall: Wall) -> None:
    """Write one record after the other, until the client that reads them is let go (Over): its token expires
    when it has read some. offsets: gets those that it has read."""
    while True:
        await there.sources["orders"].publish([b"x"])
        offsets += [each["offset"] for each in await heard_records(client)]
        if len(offsets) == SOME:
            wall.now = there.mine.expires_at


async def test_two_identities_read_one_topic_and_each_sees_what_is_for_it() -> None:
    """Guests see no secrets, and nothing of what is withheld from them: not by a condition, either."""
    everything, by_value = "SELECT * FROM Orders", "SELECT n FROM Orders WHERE n LIKE '%secret%' OR n = 9"
    async with AsyncExitStack() as stack:
        there = await stack.enter_async_context(world("guest"))
        pages = {}
        for who, sql in product(("reader", "guest"), (everything, by_value)):
            it = await stack.enter_async_context(page(there.gateway, token=f"the-token-of-{who}"))
            assert await it.answer("SUBSCRIBE", 1, {"sqls": [sql]}) == ("SUCCESS", "Orders")
            pages[who, sql] = it
        await there.sources["orders"].publish([b'{"n":"open"}', b'{"n":"secret"}', b'"withheld"', b"{secret"])
        await there.sources["orders"].publish([b'{"n":9}'])
        seen = {of: await values_until(each, 4) for of, each in pages.items()}
    assert seen == {
        ("reader", everything): ['{"n":"open"}', '{"n":"secret"}', '"withheld"', "{secret", '{"n":9}'],
        ("guest", everything): ['{"n":"open"}', '{"n":"***"}', "{***", '{"n":9}'],
        ("reader", by_value): ['{"n":"secret"}', '{"n":9}'],
        ("guest", by_value): ['{"n":9}'],
    }


@pytest.mark.slow
@pytest.mark.parametrize("in_head", [True, False])
async def test_nothing_follows_when_a_token_expires_in_the_middle_of_a_topic(
    in_head: bool, wall: Wall
) -> None:
    """Another client of the same source goes on."""
    wanted, done = {"sqls": ["SELECT * FROM Orders"]}, ("SUCCESS", "Orders")
    async with world() as there:
        there.mine.expires_at = wall.now + 1.5
        async with (
            page(there.gateway, token="short" if in_head else None) as it,
            page(there.gateway, token="the-token-of-reader") as other,
        ):
            assert await it.answer("SUBSCRIBE", 1, wanted, None if in_head else "short") == done
            assert await other.answer("SUBSCRIBE", 1, wanted) == done
            offsets: list[int] = []
            with pytest.raises(Over) as over:
                await write_and_read(there, it, offsets, wall)
            assert (over.value.code, over.value.reason) == (4402, "token_expired")
            assert offsets == list(range(max(SOME, len(offsets))))
            await there.sources["orders"].publish([b"x"])
            with pytest.raises(Over) as over:
                await it.hear()
            assert over.value.code is None, "nothing behind the close frame"
            assert set(await values_until(other, len(offsets) + 1)) == {"x"}
        async with page(there.gateway) as late:
            expired = "ERROR", "the credentials have expired"
            assert await late.answer("SUBSCRIBE", 1, wanted, "short") == expired
