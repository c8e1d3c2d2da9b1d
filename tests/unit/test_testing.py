"""The kit for plugin authors: good sources pass, and every wrong one is caught by the rule it breaks."""

from __future__ import annotations

import functools
import math
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest
import trio
from trio.testing import MockClock

from kiwi_gw.api import (
    Batch,
    Extent,
    Field,
    Gap,
    HistoryReader,
    Kind,
    Out,
    Positions,
    Section,
    Shape,
    Source,
    SourceContext,
    SourceFailed,
    SourceType,
)
from kiwi_gw.model import BY_PARTITION, PositionCodec
from kiwi_gw.testing import SourceReport, check_source

SHAPE = Shape((Field("sourceId", Kind.SOURCE_ID), Field("n", Kind.INT)))


class NumberSettings(Section):
    type: Literal["numbers"]
    id: str = "numbers"


Run = Callable[[Out, Positions | None], Awaitable[None]]


class Numbers:
    """A source made of one function."""

    def __init__(self, run: Run) -> None:
        self._run = run

    async def run(self, out: Out, start: Positions | None) -> None:
        await self._run(out, start)


def source_type(run: Run, shape: Shape = SHAPE, **more: Any) -> SourceType:
    return SourceType("numbers", NumberSettings, lambda settings, context: Numbers(run), shape, **more)


async def check(run: Run, shape: Shape = SHAPE, **options: Any) -> SourceReport:
    return await check_source(source_type(run, shape), {"type": "numbers"}, **options)


def one(number: int, value: object = None, **changes: Any) -> Batch:
    fields: dict[str, Any] = {
        "starts": {0: number},
        "partitions": [0],
        "offsets": [number],
        "columns": {"n": [number if value is None else value]},
        "cost": 8,
    }
    return Batch(**(fields | changes))


async def good(out: Out, start: Positions | None) -> None:
    number = start[0] if start else 3
    await out.ready({0: number})
    while True:
        await out.publish(one(number))
        number += 1


# --- sources that keep the contract -----------------------------------------------------------------


async def test_a_good_source_passes_and_is_reported() -> None:
    report = await check(good, events=10, repeatable=True)
    assert not report.finite
    assert report.first == {0: 3}
    assert report.events >= 11
    assert report.positions == {0: 3 + report.events}
    assert report.runs == 2 + 5 + 1 + 1


async def test_a_finite_source_passes() -> None:
    async def run(out: Out, start: Positions | None) -> None:
        first = start[0] if start else 0
        await out.ready({0: first})
        for number in range(first, 5):
            await out.publish(one(number))

    report = await check(run, events=100, repeatable=True)
    assert (report.finite, report.events, report.positions) == (True, 5, {0: 5})


async def test_a_finite_source_without_any_event_passes() -> None:
    async def run(out: Out, start: Positions | None) -> None:
        await out.ready({0: 0})

    report = await check(run, repeatable=True)
    assert (report.finite, report.events) == (True, 0)


async def test_a_lazy_source_passes_and_time_is_trios(autojump_clock: MockClock) -> None:
    async def run(out: Out, start: Positions | None) -> None:
        number = start[0] if start else 0
        await out.ready({0: number})
        await out.wait_subscribed()
        while True:
            await trio.sleep(0.9)
            await out.publish(one(number))
            number += 1

    began = time.monotonic()
    assert (await check(run, lazy=True, events=8)).events >= 9
    assert time.monotonic() - began < 5


async def test_holes_gaps_partitions_and_tasks_of_its_own_are_legal() -> None:
    async def run(out: Out, start: Positions | None) -> None:
        at = dict(start or {0: 0, 1: 0})
        await out.ready(at)
        sender, receiver = trio.open_memory_channel[int](2)

        async def read() -> None:
            number = 0
            while True:
                await sender.send(number)
                number += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            async for _ in receiver:
                offsets = [at[0], at[1], at[1] + 2]
                await out.publish(Batch(dict(at), [0, 1, 1], offsets, {"n": offsets}, 24))
                lost = Gap({0: (at[0] + 1, at[0] + 1)}, 1)
                at = {0: at[0] + 2, 1: at[1] + 4}
                await out.publish(Batch(dict(at), [], [], {"n": []}, 0, lost))

    assert (await check(run, events=30)).events >= 30


async def test_offsets_with_holes_are_not_taken_for_lost_events() -> None:
    async def run(out: Out, start: Positions | None) -> None:
        number = start[0] if start else 0
        await out.ready({0: number})
        number += number % 2  # only even offsets hold records
        while True:
            await out.publish(one(number))
            number += 2

    assert (await check(run, repeatable=True)).events >= 10


async def test_every_kind_of_column_that_fits_passes() -> None:
    shape = Shape(
        (
            Field("type", Kind.SOURCE_TYPE),
            Field("text", Kind.TEXT),
            Field("bytes", Kind.BASE64, column="text"),
            Field("string", Kind.STRING),
            Field("json", Kind.JSON),
            Field("any", Kind.VALUE),
            Field("headers", Kind.HEADERS),
            Field("at", Kind.INT, column="timestamp", none=-1),
        ),
        variants={"other": (Field("offset", Kind.INT), Field("partition", Kind.INT))},
    )

    async def run(out: Out, start: Positions | None) -> None:
        at = start[0] if start else 0
        await out.ready({0: at})
        while True:
            columns: dict[str, list[object]] = {
                "text": [b"\xff", None],
                "string": ["a", None],
                "json": [b'{"a":1}', None],
                "any": [{"a": [1.5, None]}, None],
                "headers": [[("h", None)], ()],
                "timestamp": [-1, 0],
                "key": [b"k", None],
            }
            await out.publish(Batch({0: at}, [0, 0], [at, at + 1], columns, 50))
            at += 2

    assert (await check(run, shape)).batches >= 5


async def test_settings_sections_and_services_reach_the_source() -> None:
    class Extra(Section):
        first: int = 7

    class Named(Section):
        type: Literal["numbers"]
        topic: str

    seen: list[SourceContext] = []

    def build(settings: Section, context: SourceContext) -> Source:
        seen.append(context)
        return Numbers(good)

    kind = SourceType(
        "numbers",
        Named,
        build,
        SHAPE,
        services=("pool",),
        sections=("extra",),
        source_id=lambda settings: settings.topic,  # type: ignore[attr-defined]
    )
    pool = object()
    settings = {"type": "numbers", "topic": "t", "id": "x", "subscriber": {}}
    await check_source(kind, settings, sections={"extra": Extra()}, services={"pool": pool})
    assert [context.source_id for context in seen] == ["t", "t"]
    assert seen[0].plugins.section("extra") == Extra()
    assert seen[0].services["pool"] is pool
    with pytest.raises(AssertionError, match="needs the section 'extra': pass it in sections="):
        await check_source(kind, settings)
    with pytest.raises(AssertionError, match="needs the service 'pool': pass it in services="):
        await check_source(kind, settings, sections={"extra": Extra()})


async def test_the_sources_that_it_depends_on_reach_it() -> None:
    seen: list[SourceContext] = []

    def build(settings: Section, context: SourceContext) -> Source:
        seen.append(context)
        return Numbers(good)

    kind = SourceType("numbers", NumberSettings, build, SHAPE, depends=lambda settings: ["other"])
    other = NumberSettings(type="numbers", id="other")
    await check_source(kind, {"type": "numbers"}, sources={"other": other})
    assert seen[0].plugins.sources["other"] is other
    with pytest.raises(AssertionError, match="depends on the source 'other': pass it in sources="):
        await check_source(kind, {"type": "numbers"})


async def test_what_a_type_says_by_the_settings_is_asked_with_them(autojump_clock: MockClock) -> None:
    asked: list[str] = []

    def tell(what: str, answer: Any) -> Callable[[Section], Any]:
        def ask(settings: Section) -> Any:
            assert isinstance(settings, NumberSettings)
            asked.append(what)
            return answer

        return ask

    functions = {
        "services": tell("services", ("pool",)),
        "sections": tell("sections", ()),
        "codec": tell("codec", BY_PARTITION),
        "replayable": tell("replayable", True),
    }
    with pytest.raises(AssertionError, match="needs the service 'pool'"):
        await check_source(source_type(good, **functions), {"type": "numbers"})
    with pytest.raises(AssertionError, match=r"must be an api.History"):
        await check_source(source_type(good, **functions), {"type": "numbers"}, services={"pool": 1})
    assert set(asked) == {*functions}


# --- sources that do not ----------------------------------------------------------------------------


async def publishes_before_ready(out: Out, start: Positions | None) -> None:
    await out.publish(one(0))


async def ready_twice(out: Out, start: Positions | None) -> None:
    await out.ready({0: 0})
    await out.ready({0: 0})


async def never_ready(out: Out, start: Positions | None) -> None:
    return


async def ignores_start(out: Out, start: Positions | None) -> None:
    await good(out, None)


async def ready_at_start_but_publishes_from_the_beginning(out: Out, start: Positions | None) -> None:
    await out.ready(start or {0: 0})
    for number in range(100):
        await out.publish(one(number))


async def skips_one_after_a_restart(out: Out, start: Positions | None) -> None:
    await good(out, {0: start[0] + 1} if start else None)


async def forgets_a_partition(out: Out, start: Positions | None) -> None:
    await out.ready({0: 0, 1: 0})
    await out.publish(one(0))


async def offsets_go_back(out: Out, start: Positions | None) -> None:
    await out.ready({0: 0})
    await out.publish(Batch({0: 0}, [0, 0], [1, 0], {"n": [1, 0]}, 16))


async def starts_behind_the_events(out: Out, start: Positions | None) -> None:
    await out.ready({0: 0})
    await out.publish(one(0, starts={0: 1}))


async def starts_before_the_gap(out: Out, start: Positions | None) -> None:
    await out.ready({0: 0})
    await out.publish(one(5, starts={0: 0}, gap=Gap({0: (0, 4)}, 5)))


async def columns_of_unequal_length(out: Out, start: Positions | None) -> None:
    await out.ready({0: 0})
    await out.publish(one(0, columns={"n": [1, 2]}))


async def lacks_a_column(out: Out, start: Positions | None) -> None:
    await out.ready({0: 0})
    await out.publish(one(0, columns={"m": [1]}))


async def text_for_a_number(out: Out, start: Positions | None) -> None:
    await out.ready({0: 0})
    await out.publish(one(0, "zero"))


async def truth_for_a_number(out: Out, start: Positions | None) -> None:
    await out.ready({0: 0})
    await out.publish(one(0, True))


async def negative_cost(out: Out, start: Positions | None) -> None:
    await out.ready({0: 0})
    await out.publish(one(0, cost=-1))


async def fractional_cost(out: Out, start: Positions | None) -> None:
    await out.ready({0: 0})
    await out.publish(one(0, cost=8.5))


async def publishes_no_batch(out: Out, start: Positions | None) -> None:
    await out.ready({0: 0})
    await out.publish({"n": 1})  # type: ignore[arg-type]


async def publishes_from_two_tasks(out: Out, start: Positions | None) -> None:
    await out.ready({0: 0})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(out.publish, one(0))
        nursery.start_soon(out.publish, one(1))


async def uses_its_list_again(out: Out, start: Positions | None) -> None:
    at = start[0] if start else 0
    await out.ready({0: at})
    numbers = [0]
    while True:
        numbers[0] = at
        await out.publish(one(at, columns={"n": numbers}))
        at += 1


async def swallows_being_cancelled(out: Out, start: Positions | None) -> None:
    try:
        await good(out, start)
    except trio.Cancelled:
        return


async def goes_on_when_it_is_cancelled(out: Out, start: Positions | None) -> None:
    number = start[0] if start else 0
    await out.ready({0: number})
    for attempt in range(50):
        try:
            await out.publish(one(number + attempt))
        except BaseException:  # noqa: BLE001, S112  (wrong on purpose)
            continue


async def hides_its_mistake(out: Out, start: Positions | None) -> None:
    number = start[0] if start else 0
    await out.ready({0: number})
    while True:
        try:
            await out.publish(one(number, cost=-8))
        except Exception:  # noqa: BLE001  (wrong on purpose)
            await trio.lowlevel.checkpoint()
            await out.publish(one(number))
        number += 1


async def fails_when_it_is_cancelled(out: Out, start: Positions | None) -> None:
    try:
        await good(out, start)
    finally:
        raise OSError("the connection is gone")


async def raises(out: Out, start: Positions | None) -> None:
    raise SourceFailed("there is no such file")


async def raises_in_a_group(out: Out, start: Positions | None) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(publishes_before_ready, out, start)


async def sleeps_for_real(out: Out, start: Positions | None) -> None:
    time.sleep(0.6)  # noqa: ASYNC251  (wrong on purpose)
    await good(out, start)


async def published_after_its_end(out: Out, start: Positions | None) -> None:
    at = start[0] if start else 0
    await out.ready({0: at})
    for number in range(at, at + 3):
        await out.publish(one(number))


async def waits_before_it_is_ready(out: Out, start: Positions | None) -> None:
    await out.wait_subscribed()
    await good(out, start)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (publishes_before_ready, "publish was called before ready"),
        (ready_twice, "ready was called twice in one run"),
        (never_ready, "run returned without calling ready"),
        (ignores_start, "ready is at 3 of partition 0, but run was given 4 as its start"),
        (ready_at_start_but_publishes_from_the_beginning, "begins at offset 0 of partition 0, which repeats"),
        (skips_one_after_a_restart, "after a restart it skipped offsets 3 to 3 of partition 0"),
        (forgets_a_partition, "starts must name every partition of the source; partition 1 is missing"),
        (offsets_go_back, "offsets must grow within a partition: offset 0 of partition 0 where 2 is next"),
        (starts_behind_the_events, "starts lies behind the events: offset 0 of partition 0 where 1 is next"),
        (starts_before_the_gap, "starts must lie behind the gap: partition 0 lost 0 to 4"),
        (columns_of_unequal_length, "column 'n' has 2 values for 1 events"),
        (lacks_a_column, "the shape has a field 'n', but the batch has no column 'n'"),
        (text_for_a_number, "column 'n', Kind.INT: event 0 has str 'zero'; wanted is int"),
        (truth_for_a_number, "column 'n', Kind.INT: event 0 has bool True; wanted is int"),
        (negative_cost, "cost must be a number of bytes, an int that is not negative, not -1"),
        (fractional_cost, "cost must be a number of bytes, an int that is not negative, not 8.5"),
        (publishes_no_batch, "publish takes a kiwi_gw.api.Batch, not dict"),
        (publishes_from_two_tasks, "publish was called while an earlier publish had not returned"),
        (uses_its_list_again, "a batch was changed after it was handed over"),
        (swallows_being_cancelled, "it swallows trio.Cancelled"),
        (goes_on_when_it_is_cancelled, "publish was called again after the run had been cancelled"),
        (hides_its_mistake, "an int that is not negative, not -8"),
        (fails_when_it_is_cancelled, "run raised OSError when it was cancelled: the connection is gone"),
        (raises, "run raised SourceFailed: there is no such file"),
        (raises_in_a_group, "publish was called before ready"),
        (sleeps_for_real, "run blocks the event loop: 0.6"),
        (published_after_its_end, "published 1 more events when it was called from its end"),
        (waits_before_it_is_ready, "wait_subscribed was called before ready"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_a_wrong_source_is_caught_by_the_rule_it_breaks(run: Run, words: str) -> None:
    with pytest.raises(AssertionError) as caught:
        await check(run, events=30)
    assert words in str(caught.value)


async def test_a_source_that_says_nothing_runs_into_the_deadline(autojump_clock: MockClock) -> None:
    async def silent(out: Out, start: Positions | None) -> None:
        await trio.sleep_forever()

    async def slow(out: Out, start: Positions | None) -> None:
        number = start[0] if start else 0
        await out.ready({0: number})
        while True:
            await out.publish(one(number))
            number += 1
            await trio.sleep(4)

    with pytest.raises(AssertionError, match=r"not ready within 10\.0 s"):
        await check(silent)
    with pytest.raises(AssertionError, match=r"published 3 of 5 events within 10\.0 s"):
        await check(slow, events=5)


async def test_a_source_that_holds_up_its_end_is_caught(autojump_clock: MockClock) -> None:
    async def run(out: Out, start: Positions | None) -> None:
        try:
            await good(out, start)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(3)

    with pytest.raises(AssertionError, match=r"run took 3\.0 s to end after it was cancelled"):
        await check(run)


async def test_a_lazy_source_that_is_not_is_caught() -> None:
    with pytest.raises(AssertionError, match="published before anybody had subscribed"):
        await check(good, lazy=True)


async def test_a_source_that_cannot_be_repeated_is_caught() -> None:
    drawn: list[int] = []

    async def run(out: Out, start: Positions | None) -> None:
        number = start[0] if start else 0
        await out.ready({0: number})
        while True:
            drawn.append(number)
            await out.publish(one(number, len(drawn)))
            number += 1

    await check(run)
    with pytest.raises(AssertionError, match=r"the same start must give the same events"):
        await check(run, repeatable=True)
    with pytest.raises(AssertionError, match=r"the same start must give the same events"):
        await check_source(source_type(run, replayable=True), {"type": "numbers"})


async def test_a_source_that_cannot_be_restarted_can_be_checked_for_the_rest() -> None:
    assert (await check(ignores_start, restart=False, events=5)).runs == 1


async def test_a_task_that_outlives_its_run_is_caught() -> None:
    outs: list[Out] = []

    async def run(out: Out, start: Positions | None) -> None:
        if outs:
            await outs[0].publish(one(99))
        outs.append(out)
        await good(out, start)

    with pytest.raises(AssertionError, match="publish was called after run had ended"):
        await check(run)


async def test_a_codec_that_does_not_read_back_is_caught() -> None:
    codec = PositionCodec(dump=lambda positions: {"at": positions[0]}, load=lambda value: {0: 0})
    with pytest.raises(AssertionError, match="the codec does not read back what it wrote"):
        await check_source(source_type(good, codec=codec), {"type": "numbers"})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Kind.TEXT, "text"),
        (Kind.BASE64, bytearray(b"x")),
        (Kind.STRING, b"bytes"),
        (Kind.STRING, "\ud800"),
        (Kind.JSON, b"{"),
        (Kind.JSON, b"NaN"),
        (Kind.JSON, "1"),
        (Kind.JSON, b"\xff"),
        (Kind.VALUE, math.nan),
        (Kind.VALUE, {1, 2}),
        (Kind.HEADERS, None),
        (Kind.HEADERS, [("a", "text")]),
        (Kind.INT, None),
        (Kind.INT, 1.0),
    ],
)
async def test_a_value_that_does_not_fit_its_kind_is_caught(kind: Kind, value: object) -> None:
    async def run(out: Out, start: Positions | None) -> None:
        await out.ready({0: 0})
        await out.publish(one(0, columns={"n": [value]}))

    with pytest.raises(AssertionError, match=f"column 'n', Kind.{kind.name}: event 0"):
        await check(run, Shape((Field("n", kind),)))


@pytest.mark.parametrize("name", ["key", "value", "timestamp", "headers"])
async def test_a_conventional_column_that_holds_something_else_is_caught(name: str) -> None:
    async def run(out: Out, start: Positions | None) -> None:
        await out.ready({0: 0})
        await out.publish(one(0, columns={"n": [0], name: ["text"]}))

    with pytest.raises(AssertionError, match=f"column '{name}', by convention"):
        await check(run)


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (Shape(()), "the shape has no fields"),
        (Shape((Field("n", Kind.INT), Field("n", Kind.INT))), "two fields called 'n'"),
        (Shape((Field("n", Kind.TEXT, none=0),)), "has a `none`, which is for Kind.INT only"),
        (Shape((Field("n", Kind.INT),), {"v": ()}), "variant 'v' of the shape has no fields"),
        ("n", "shape must be a kiwi_gw.api.Shape"),
    ],
)
async def test_a_wrong_shape_is_caught(shape: Any, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        await check(good, shape)


async def _async_build() -> None: ...


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (_async_build, "build must be a plain function, not async"),
        (object, "build must return a Source, with shape and run, not a object"),
        (
            lambda: open("/etc/hostname", "rb").close(),
            "build does I/O, which belongs into run: open of /etc/host",
        ),
        (lambda: tempfile.TemporaryFile().close(), "build does I/O, which belongs into run: open of"),
        (lambda: __import__("socket").socket().close(), "build does I/O, .* socket.__new__"),
        (lambda: time.sleep(1.1), "build takes more than a second"),
        (lambda: __import__("subprocess").run("true"), "build does I/O, .* subprocess.Popen"),
    ],
)
async def test_a_build_that_does_more_than_build_is_caught(build: Callable[[], Any], words: str) -> None:
    kind = SourceType("numbers", NumberSettings, lambda settings, context: build(), SHAPE)
    with pytest.raises(AssertionError, match=words):
        await check_source(kind, {"type": "numbers"})


async def test_settings_that_do_not_fit_are_named() -> None:
    class NoType(Section):
        id: str = "x"

    class Other(Section):
        type: Literal["numbers"]

    build = functools.partial(SourceType, build=lambda settings, context: Numbers(good), shape=SHAPE)
    with pytest.raises(AssertionError, match=r"NoType must have the field `type: Literal\['numbers'\]`"):
        await check_source(build("numbers", NoType), {})
    with pytest.raises(AssertionError, match="the settings do not fit NumberSettings"):
        await check_source(source_type(good), {"type": "numbers", "topc": "x"})
    with pytest.raises(AssertionError, match="settings are a Other, not a NumberSettings"):
        await check_source(source_type(good), Other(type="numbers"))


class Remembers:
    """A source of numbers that can be read again. Subclasses get it wrong."""

    async def run(self, out: Out, start: Positions | None) -> None:
        await good(out, start)

    async def extent(self) -> Extent:
        return Extent({0: 0}, {0: 1 << 40})

    async def at(self, timestamp: int) -> Positions:
        return {0: 0}

    @asynccontextmanager
    async def read_from(self, positions: Positions) -> AsyncIterator[HistoryReader]:
        yield Reader(positions[0])


class Reader:
    def __init__(self, here: int) -> None:
        self.here = here

    async def read(self, until: Positions) -> Batch:
        await trio.lowlevel.checkpoint()
        if self.here >= until[0]:
            return Batch({0: self.here}, (), (), {"n": ()}, 0)
        self.here += 1
        return one(self.here - 1)


def remembering(source: object) -> SourceType:
    return SourceType("numbers", NumberSettings, lambda settings, context: source, SHAPE, replayable=True)  # type: ignore[arg-type, return-value]


async def test_history_is_compared_with_what_was_published() -> None:
    await check_source(remembering(Remembers()), {"type": "numbers"})


async def test_a_replayable_source_without_history_is_caught() -> None:
    with pytest.raises(AssertionError, match=r"must be an api.History"):
        await check_source(source_type(good, replayable=True), {"type": "numbers"})


class Skips(Remembers):
    @asynccontextmanager
    async def read_from(self, positions: Positions) -> AsyncIterator[HistoryReader]:
        yield Reader(positions[0] + 1)


class ForgetsItsEnd(Remembers):
    async def extent(self) -> Extent:
        return Extent({0: 0}, {0: 0})


class NamesNoPartition(Remembers):
    async def at(self, timestamp: int) -> Positions:
        return {}


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        (Skips(), "where 1[0-9] were published"),
        (ForgetsItsEnd(), "before what was published"),
        (NamesNoPartition(), r"at\(0\) must name every partition"),
    ],
)
async def test_history_that_breaks_the_contract_is_caught(source: Remembers, rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        await check_source(remembering(source), {"type": "numbers"})
