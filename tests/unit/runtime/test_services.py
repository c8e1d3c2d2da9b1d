"""A service that fails while it opens, while it is used, while it closes; that hangs; that ends by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from structlog.typing import EventDict
from trio.testing import MockClock

from kiwi_gw.api import PluginContext, Section, ServiceType
from kiwi_gw.runtime.services import LINGER_SECONDS, Services
from tests.unit.runtime.fakes import settled

Logged = Callable[[str], list[EventDict]]
Step = Callable[[], Awaitable[None]]


async def _nothing() -> None:
    await trio.lowlevel.checkpoint()


class Dial(Section):
    number: int = 1


class Pool:
    """A service type and what became of it. Each step is what it does then."""

    def __init__(self, opening: Step = _nothing, closing: Step = _nothing, name: str = "pool") -> None:
        self.events: list[str] = []
        self.inside = trio.Event()
        self._opening, self._closing = opening, closing
        self.type = ServiceType(name, self._open, ("dial",))

    @asynccontextmanager
    async def _open(self, context: PluginContext) -> AsyncIterator[object]:
        self.events.append("opening")
        try:
            await self._opening()
            self.events.append("open")
            async with trio.open_nursery() as nursery:
                self.nursery = nursery
                yield self
                nursery.cancel_scope.cancel()
            await self._closing()
        finally:
            self.events.append("closed")


async def lingered() -> None:
    await trio.sleep(LINGER_SECONDS * 1.1)
    await settled()


def context(number: int = 1) -> PluginContext:
    return PluginContext({"dial": Dial(number=number)})


class Bench:
    def __init__(self, services: Services, nursery: trio.Nursery) -> None:
        self.services, self._nursery = services, nursery
        self.ends: list[BaseException | str] = []

    def user(self, *pools: Pool, number: int = 1, block: Step = trio.sleep_forever) -> trio.CancelScope:
        """Start a task that uses these services; how it ends is in `ends`."""
        kinds = {pool.type.name: pool.type for pool in pools}
        scope = trio.CancelScope()

        async def use() -> None:
            try:
                with scope:
                    async with self.services.use(kinds, tuple(kinds), context(number)) as values:
                        assert list(values.values()) == list(pools)
                        await block()
                    self.ends.append("ended")
                if scope.cancelled_caught:
                    self.ends.append("cancelled")
            except BaseException as error:  # the test looks at it
                self.ends.append(error)
                if isinstance(error, trio.Cancelled):
                    raise

        self._nursery.start_soon(use)
        return scope


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with trio.open_nursery() as nursery:
        services = Services()
        nursery.start_soon(services.run)
        await services.started.wait()
        yield Bench(services, nursery)
        services.stop()
        nursery.cancel_scope.cancel()


async def test_it_is_open_from_its_first_user_to_its_last(autojump_clock: MockClock, bench: Bench) -> None:
    pool = Pool()
    assert pool.events == []
    first, second = bench.user(pool), bench.user(pool)
    await settled()
    assert pool.events == ["opening", "open"]
    first.cancel()
    await settled()
    assert pool.events == ["opening", "open"]
    second.cancel()
    await lingered()
    assert pool.events == ["opening", "open", "closed"]
    bench.user(pool)
    await settled()
    assert pool.events == ["opening", "open", "closed", "opening", "open"]


async def test_it_stays_open_for_one_that_lets_go_and_comes_back(
    autojump_clock: MockClock, bench: Bench
) -> None:
    pool = Pool()
    for _ in range(5):
        user = bench.user(pool)
        await trio.sleep(10)
        user.cancel()
        await trio.sleep(LINGER_SECONDS * 0.9)
    assert pool.events == ["opening", "open"]
    await lingered()
    assert pool.events == ["opening", "open", "closed"]


async def test_other_sections_are_another_service(bench: Bench) -> None:
    pool = Pool()
    bench.user(pool, number=1)
    bench.user(pool, number=2)
    bench.user(pool, number=1)
    await settled()
    assert pool.events.count("opening") == 2


async def test_what_the_block_raises_comes_out_as_it_is(autojump_clock: MockClock, bench: Bench) -> None:
    error = ValueError("the source's own")

    async def fail() -> None:
        raise error

    pool = Pool()
    bench.user(pool, block=fail)
    await lingered()
    assert bench.ends == [error]
    assert pool.events == ["opening", "open", "closed"]


async def test_it_fails_while_it_opens(bench: Bench, logged: Logged) -> None:
    error = OSError("no route")

    async def fail() -> None:
        raise error

    pool = Pool(opening=fail)
    bench.user(pool)
    bench.user(pool)
    await settled()
    assert bench.ends == [error, error]
    assert len(logged("a service failed")) == 1


@pytest.mark.parametrize("error", [OSError("gone"), asyncio.CancelledError(), SystemExit(1)], ids=repr)
async def test_it_fails_while_it_is_used(bench: Bench, error: BaseException, logged: Logged) -> None:
    pool, other = Pool(), Pool(name="other")
    bench.user(pool)
    bench.user(pool)
    bench.user(other)
    await settled()
    pool.nursery.start_soon(raises(error))
    await settled()
    assert bench.ends == [error, error]  # out of the nursery's group
    assert len(logged("a service failed")) == 1
    assert pool.events == ["opening", "open", "closed"]
    assert other.events == ["opening", "open"]
    bench.user(pool)
    await settled()
    assert pool.events[-1] == "open"  # anew


async def test_it_fails_while_it_is_cleaned_up_after_a_failure(bench: Bench, logged: Logged) -> None:
    async def clean_up() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("cannot close")

    pool = Pool()
    bench.user(pool)
    await settled()
    pool.nursery.start_soon(clean_up)
    await settled()
    pool.nursery.start_soon(raises(OSError("gone")))
    await settled()
    (error,) = bench.ends
    assert isinstance(error, ExceptionGroup)
    assert len(logged("a service failed")) == 1


async def test_it_fails_while_it_closes_and_nobody_is_touched(
    autojump_clock: MockClock, bench: Bench, logged: Logged
) -> None:
    pool = Pool(closing=raises(OSError("cannot close")))
    for _ in range(2):
        user = bench.user(pool)
        await settled()
        user.cancel()
        await lingered()
    assert pool.events == ["opening", "open", "closed"] * 2
    assert bench.ends == ["cancelled", "cancelled"]
    assert len(logged("a service failed")) == 2


async def test_one_that_ends_by_itself_has_failed(bench: Bench, logged: Logged) -> None:
    """Or its users would take their cancellation for their own end."""
    pool = Pool()
    bench.user(pool)
    await settled()
    pool.nursery.cancel_scope.cancel()
    await settled()
    (error,) = bench.ends
    assert isinstance(error, RuntimeError)
    assert "'pool' has ended by itself" in str(error)
    assert len(logged("a service failed")) == 1


async def test_one_that_never_opens_is_given_up_with_its_last_user(bench: Bench) -> None:
    pool = Pool(opening=trio.sleep_forever)
    first, second = bench.user(pool), bench.user(pool)
    await settled()
    first.cancel()
    await settled()
    assert pool.events == ["opening"]
    second.cancel()
    await settled()
    assert pool.events == ["opening", "closed"]
    assert bench.ends == ["cancelled", "cancelled"]


async def test_one_that_fails_is_not_kept_waiting_by_one_that_never_opens(
    autojump_clock: MockClock, bench: Bench
) -> None:
    works, hangs = Pool(), Pool(opening=trio.sleep_forever, name="hangs")
    bench.user(works, hangs)
    await settled()
    error = OSError("gone")
    works.nursery.start_soon(raises(error))
    await settled()
    assert bench.ends == [error]
    assert hangs.events == ["opening", "closed"]


async def test_a_user_that_comes_while_it_closes_gets_another(
    autojump_clock: MockClock, bench: Bench
) -> None:
    slow = trio.Event()
    pool = Pool(closing=slow.wait)
    first = bench.user(pool)
    await settled()
    first.cancel()
    await lingered()
    bench.user(pool)
    await settled()
    assert pool.events == ["opening", "open", "opening", "open"]
    slow.set()
    await settled()
    assert pool.events[-1] == "closed"
    assert bench.ends == ["cancelled"]


async def test_a_name_that_no_plugin_provides_lets_go_of_the_others(
    autojump_clock: MockClock, bench: Bench
) -> None:
    pool = Pool()
    with pytest.raises(KeyError, match="missing"):
        async with bench.services.use({"pool": pool.type}, ("pool", "missing"), context()):
            raise AssertionError("not all are there")
    await settled()
    assert pool.events in ([], ["opening", "closed"])
    bench.user(pool)
    await settled()
    assert pool.events[-1] == "open"


async def test_stopping_closes_what_is_open_and_what_is_opening(nursery: trio.Nursery) -> None:
    services = Services()
    nursery.start_soon(services.run)
    await services.started.wait()
    bench = Bench(services, nursery)
    pool, hangs = Pool(), Pool(opening=trio.sleep_forever, name="hangs")
    bench.user(pool)
    bench.user(hangs)
    await settled()
    services.stop()
    await settled()
    assert pool.events[-1] == hangs.events[-1] == "closed"


def raises(error: BaseException) -> Step:
    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise error

    return fail
