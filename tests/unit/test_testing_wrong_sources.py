"""The kit for plugin authors: every wrong source is caught by the rule it breaks."""

from __future__ import annotations

import functools
import math
import tempfile
import time
from collections.abc import Callable
from typing import Any, Literal

import pytest
import trio
from trio.testing import MockClock

from kiwi_gw.api import (
    Batch,
    EventSchema,
    Field,
    FieldEncoding,
    Gap,
    Positions,
    Publisher,
    Section,
    SourceFailed,
    SourceType,
)
from kiwi_gw.model import PositionCodec
from kiwi_gw.testing import check_source
from tests.unit.numbers import SHAPE, Numbers, NumberSettings, Run, check, good, one, source_type


async def publishes_before_ready(publisher: Publisher, start: Positions | None) -> None:
    await publisher.publish(one(0))


async def ready_twice(publisher: Publisher, start: Positions | None) -> None:
    await publisher.ready({0: 0})
    await publisher.ready({0: 0})


async def never_ready(publisher: Publisher, start: Positions | None) -> None:
    return


async def ignores_start(publisher: Publisher, start: Positions | None) -> None:
    await good(publisher, None)


async def ready_at_start_but_publishes_from_the_beginning(
    publisher: Publisher, start: Positions | None
) -> None:
    await publisher.ready(start or {0: 0})
    for number in range(100):
        await publisher.publish(one(number))


async def skips_one_after_a_restart(publisher: Publisher, start: Positions | None) -> None:
    await good(publisher, {0: start[0] + 1} if start else None)


async def forgets_a_partition(publisher: Publisher, start: Positions | None) -> None:
    await publisher.ready({0: 0, 1: 0})
    await publisher.publish(one(0))


async def offsets_go_back(publisher: Publisher, start: Positions | None) -> None:
    await publisher.ready({0: 0})
    await publisher.publish(Batch({0: 0}, [0, 0], [1, 0], {"n": [1, 0]}, 16))


async def starts_behind_the_events(publisher: Publisher, start: Positions | None) -> None:
    await publisher.ready({0: 0})
    await publisher.publish(one(0, starts={0: 1}))


async def starts_before_the_gap(publisher: Publisher, start: Positions | None) -> None:
    await publisher.ready({0: 0})
    await publisher.publish(one(5, starts={0: 0}, gap=Gap({0: (0, 4)}, 5)))


async def columns_of_unequal_length(publisher: Publisher, start: Positions | None) -> None:
    await publisher.ready({0: 0})
    await publisher.publish(one(0, columns={"n": [1, 2]}))


async def lacks_a_column(publisher: Publisher, start: Positions | None) -> None:
    await publisher.ready({0: 0})
    await publisher.publish(one(0, columns={"m": [1]}))


async def text_for_a_number(publisher: Publisher, start: Positions | None) -> None:
    await publisher.ready({0: 0})
    await publisher.publish(one(0, "zero"))


async def truth_for_a_number(publisher: Publisher, start: Positions | None) -> None:
    await publisher.ready({0: 0})
    await publisher.publish(one(0, True))


async def negative_cost(publisher: Publisher, start: Positions | None) -> None:
    await publisher.ready({0: 0})
    await publisher.publish(one(0, cost=-1))


async def fractional_cost(publisher: Publisher, start: Positions | None) -> None:
    await publisher.ready({0: 0})
    await publisher.publish(one(0, cost=8.5))


async def publishes_no_batch(publisher: Publisher, start: Positions | None) -> None:
    await publisher.ready({0: 0})
    await publisher.publish({"n": 1})  # type: ignore[arg-type]


async def publishes_from_two_tasks(publisher: Publisher, start: Positions | None) -> None:
    await publisher.ready({0: 0})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(publisher.publish, one(0))
        nursery.start_soon(publisher.publish, one(1))


async def uses_its_list_again(publisher: Publisher, start: Positions | None) -> None:
    at = start[0] if start else 0
    await publisher.ready({0: at})
    numbers = [0]
    while True:
        numbers[0] = at
        await publisher.publish(one(at, columns={"n": numbers}))
        at += 1


async def swallows_being_cancelled(publisher: Publisher, start: Positions | None) -> None:
    try:
        await good(publisher, start)
    except trio.Cancelled:
        return


async def goes_on_when_it_is_cancelled(publisher: Publisher, start: Positions | None) -> None:
    number = start[0] if start else 0
    await publisher.ready({0: number})
    for attempt in range(50):
        try:
            await publisher.publish(one(number + attempt))
        except BaseException:  # noqa: BLE001, S112  (wrong on purpose)
            continue


async def hides_its_mistake(publisher: Publisher, start: Positions | None) -> None:
    number = start[0] if start else 0
    await publisher.ready({0: number})
    while True:
        try:
            await publisher.publish(one(number, cost=-8))
        except Exception:  # noqa: BLE001  (wrong on purpose)
            await trio.lowlevel.checkpoint()
            await publisher.publish(one(number))
        number += 1


async def fails_when_it_is_cancelled(publisher: Publisher, start: Positions | None) -> None:
    try:
        await good(publisher, start)
    finally:
        raise OSError("the connection is gone")


async def raises(publisher: Publisher, start: Positions | None) -> None:
    raise SourceFailed("there is no such file")


async def raises_in_a_group(publisher: Publisher, start: Positions | None) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(publishes_before_ready, publisher, start)


async def sleeps_for_real(publisher: Publisher, start: Positions | None) -> None:
    time.sleep(0.6)  # noqa: ASYNC251  (wrong on purpose)
    await good(publisher, start)


async def published_after_its_end(publisher: Publisher, start: Positions | None) -> None:
    at = start[0] if start else 0
    await publisher.ready({0: at})
    for number in range(at, at + 3):
        await publisher.publish(one(number))


async def waits_before_it_is_ready(publisher: Publisher, start: Positions | None) -> None:
    await publisher.wait_subscribed()
    await good(publisher, start)


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
        (text_for_a_number, "column 'n', FieldEncoding.INT: event 0 has str 'zero'; wanted is int"),
        (truth_for_a_number, "column 'n', FieldEncoding.INT: event 0 has bool True; wanted is int"),
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
    async def silent(publisher: Publisher, start: Positions | None) -> None:
        await trio.sleep_forever()

    async def slow(publisher: Publisher, start: Positions | None) -> None:
        number = first = start[0] if start else 0
        await publisher.ready({0: number})
        while True:
            await publisher.publish(one(number))
            number += 1
            await trio.sleep(4 if number - first < stops_at else 11)

    stops_at = 1_000
    await check(slow, events=5)
    stops_at = 3

    with pytest.raises(AssertionError, match=r"not ready within 10\.0 s"):
        await check(silent)
    with pytest.raises(AssertionError, match=r"published 3 of 5 events, and no more within 10\.0 s"):
        await check(slow, events=5)


async def test_a_source_that_holds_up_its_end_is_caught(autojump_clock: MockClock) -> None:
    async def run(publisher: Publisher, start: Positions | None) -> None:
        try:
            await good(publisher, start)
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

    async def run(publisher: Publisher, start: Positions | None) -> None:
        number = start[0] if start else 0
        await publisher.ready({0: number})
        while True:
            drawn.append(number)
            await publisher.publish(one(number, len(drawn)))
            number += 1

    await check(run)
    with pytest.raises(AssertionError, match=r"the same start must give the same events"):
        await check(run, repeatable=True)
    with pytest.raises(AssertionError, match=r"the same start must give the same events"):
        await check_source(source_type(run, replayable=True), {"type": "numbers"})


async def test_a_source_that_cannot_be_restarted_can_be_checked_for_the_rest() -> None:
    assert (await check(ignores_start, restart=False, events=5)).runs == 1


async def test_a_task_that_outlives_its_run_is_caught() -> None:
    outs: list[Publisher] = []

    async def run(publisher: Publisher, start: Positions | None) -> None:
        if outs:
            await outs[0].publish(one(99))
        outs.append(publisher)
        await good(publisher, start)

    with pytest.raises(AssertionError, match="publish was called after run had ended"):
        await check(run)


async def test_a_codec_that_does_not_read_back_is_caught() -> None:
    codec = PositionCodec(dump=lambda positions: {"at": positions[0]}, load=lambda value: {0: 0})
    with pytest.raises(AssertionError, match="the codec does not read back what it wrote"):
        await check_source(source_type(good, codec=codec), {"type": "numbers"})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (FieldEncoding.TEXT, "text"),
        (FieldEncoding.BASE64, bytearray(b"x")),
        (FieldEncoding.STRING, b"bytes"),
        (FieldEncoding.STRING, "\ud800"),
        (FieldEncoding.JSON, b"{"),
        (FieldEncoding.JSON, b"NaN"),
        (FieldEncoding.JSON, "1"),
        (FieldEncoding.JSON, b"\xff"),
        (FieldEncoding.VALUE, math.nan),
        (FieldEncoding.VALUE, {1, 2}),
        (FieldEncoding.HEADERS, None),
        (FieldEncoding.HEADERS, [("a", "text")]),
        (FieldEncoding.INT, None),
        (FieldEncoding.INT, 1.0),
    ],
)
async def test_a_value_that_does_not_fit_its_kind_is_caught(kind: FieldEncoding, value: object) -> None:
    async def run(publisher: Publisher, start: Positions | None) -> None:
        await publisher.ready({0: 0})
        await publisher.publish(one(0, columns={"n": [value]}))

    with pytest.raises(AssertionError, match=f"column 'n', FieldEncoding.{kind.name}: event 0"):
        await check(run, EventSchema((Field("n", kind),)))


@pytest.mark.parametrize("name", ["key", "value", "timestamp", "headers"])
async def test_a_conventional_column_that_holds_something_else_is_caught(name: str) -> None:
    async def run(publisher: Publisher, start: Positions | None) -> None:
        await publisher.ready({0: 0})
        await publisher.publish(one(0, columns={"n": [0], name: ["text"]}))

    with pytest.raises(AssertionError, match=f"column '{name}', by convention"):
        await check(run)


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (EventSchema(()), "the shape has no fields"),
        (
            EventSchema((Field("n", FieldEncoding.INT), Field("n", FieldEncoding.INT))),
            "two fields called 'n'",
        ),
        (
            EventSchema((Field("n", FieldEncoding.TEXT, none=0),)),
            "has a `none`, which is for FieldEncoding.INT only",
        ),
        (EventSchema((Field("n", FieldEncoding.INT),), {"v": ()}), "variant 'v' of the shape has no fields"),
        ("n", "shape must be a kiwi_gw.api.EventSchema"),
    ],
)
async def test_a_wrong_shape_is_caught(shape: Any, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        await check(good, shape)


async def _async_build() -> None: ...


@pytest.mark.slow
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

    build = functools.partial(SourceType, build=lambda settings, context: Numbers(good), common=SHAPE)
    with pytest.raises(AssertionError, match=r"NoType must have the field `type: Literal\['numbers'\]`"):
        await check_source(build("numbers", NoType), {})
    with pytest.raises(AssertionError, match="the settings do not fit NumberSettings"):
        await check_source(source_type(good), {"type": "numbers", "topc": "x"})
    with pytest.raises(AssertionError, match="settings are a Other, not a NumberSettings"):
        await check_source(source_type(good), Other(type="numbers"))
