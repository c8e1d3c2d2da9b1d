"""What plugins raise and answer, whatever it is, becomes a refusal, a count and one traceback in the log."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import cast

import pytest
import trio
from structlog.typing import EventDict
from trio.testing import MockClock

from kiwi_gw.api import (
    ANONYMOUS,
    Action,
    Credential,
    EventSchema,
    Identity,
    Interceptor,
    Permit,
    Record,
    Refusal,
    SourceInfo,
    Token,
    hookimpl,
)
from kiwi_gw.core.encoding import EncodingMemo, keyed_format
from kiwi_gw.core.window import MemoryBudget, WindowEntry
from kiwi_gw.errors import EncodingFailed
from kiwi_gw.model import Batch, Encoded, EventTransform, WireFormat
from kiwi_gw.plugin_manager import PluginManager
from kiwi_gw.runtime.hooks import Hooks

SOURCE = SourceInfo("news", "fake", EventSchema(()))
TOKEN = Token("secret")
ANN = Identity("ann")

Logged = Callable[[str], list[EventDict]]


class Answers:
    """A plugin whose hooks do what a test says."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act

    @hookimpl
    def authenticate(self, credential: Credential) -> object:
        return self._act()

    @hookimpl
    def authorize(self, identity: Identity, action: Action, source: SourceInfo) -> object:
        return self._act()

    @hookimpl
    def intercept(self, identity: Identity, source: SourceInfo) -> object:
        return self._act()


def hooks(*acts: Callable[[], object]) -> Hooks:
    manager = PluginManager()
    for index, act in enumerate(acts):
        manager.register(Answers(act), f"plugin{index}")
    return Hooks(manager)


class Raises:
    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __call__(self) -> object:
        raise self._error


class Unprintable(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise RuntimeError("not even that")


FAULTS = [
    ValueError("boom"),
    SystemExit(3),
    asyncio.CancelledError(),
    BaseExceptionGroup("", [SystemExit(3)]),
    Unprintable(),
]


@pytest.mark.parametrize("error", FAULTS, ids=lambda error: type(error).__name__)
async def test_what_hooks_raise_becomes_a_refusal(error: BaseException, logged: Logged) -> None:
    asked = hooks(Raises(error))
    assert (await refused(asked)).code == "internal_error"
    for answer in (asked.authorize(ANN, Action.SUBSCRIBE, SOURCE), asked.transforms(ANN, SOURCE)):
        assert isinstance(answer, Refusal)
        assert answer.code == "internal_error"
        assert "boom" not in answer.message
    assert asked.failures == {"authenticate": 1, "authorize": 1, "intercept": 1}
    assert [line["hook"] for line in logged("a plugin failed")] == ["authenticate", "authorize", "intercept"]


async def refused(asked: Hooks) -> Refusal:
    answer = await asked.authenticate(TOKEN, 5)
    assert isinstance(answer, Refusal)
    return answer


def test_what_is_not_the_plugins_comes_out() -> None:
    with pytest.raises(KeyboardInterrupt):
        hooks(Raises(KeyboardInterrupt())).authorize(ANN, Action.SUBSCRIBE, SOURCE)


@pytest.mark.parametrize(
    "answer",
    [
        True,
        "ann",
        {"name": "ann"},
        Identity("ann", expires_at=cast("float", datetime(2030, 1, 1, tzinfo=UTC))),
        Identity("ann", expires_at=math.nan),
        Identity("ann", expires_at=math.inf),
        Identity("ann", expires_at=True),
    ],
    ids=repr,
)
async def test_what_is_no_identity_is_a_fault(answer: object) -> None:
    asked = hooks(lambda: answer)
    assert (await refused(asked)).code == "internal_error"
    assert asked.failures["authenticate"] == 1


def test_what_is_no_refusal_or_interceptor_is_a_fault_and_lets_nobody_in() -> None:
    asked = hooks(lambda: False)
    assert isinstance(asked.authorize(ANN, Action.SUBSCRIBE, SOURCE), Refusal)
    assert isinstance(asked.transforms(ANN, SOURCE), Refusal)
    assert asked.failures == {"authorize": 1, "intercept": 1}


@pytest.mark.parametrize("key", [["a"], {"a"}, (1, ["a"])])
def test_an_interceptor_whose_key_cannot_be_a_key_is_a_fault(key: object) -> None:
    asked = hooks(lambda: Interceptor(lambda record: record, key))
    assert isinstance(asked.transforms(ANN, SOURCE), Refusal)
    assert asked.failures["intercept"] == 1


async def test_a_fault_is_counted_every_time_and_told_once_per_line(logged: Logged) -> None:
    visitors = iter(range(1_000))

    def reject() -> object:
        raise ValueError(f"visitor {next(visitors)}")

    asked = hooks(reject)
    for _ in range(50):
        asked.authorize(ANN, Action.SUBSCRIBE, SOURCE)
        asked.transforms(ANN, SOURCE)
    assert asked.failures == {"authorize": 50, "intercept": 50}
    assert [line["hook"] for line in logged("a plugin failed")] == ["authorize", "intercept"]


# --- authenticate ------------------------------------------------------------------------------


async def test_nobody_is_asked_where_no_plugin_authenticates() -> None:
    assert await hooks().authenticate(TOKEN, 5) == ANONYMOUS


async def test_without_an_opinion_the_client_is_anonymous() -> None:
    assert await hooks(lambda: None).authenticate(TOKEN, 5) == ANONYMOUS


async def test_the_first_opinion_counts() -> None:
    refusal = Refusal("invalid_token", "no")
    assert await hooks(lambda: ANN, lambda: None).authenticate(TOKEN, 5) == ANN
    assert await hooks(lambda: ANN, lambda: refusal).authenticate(TOKEN, 5) is refusal  # the last one loaded


async def test_it_runs_in_a_thread() -> None:
    threads: list[threading.Thread] = []
    await hooks(lambda: threads.append(threading.current_thread())).authenticate(TOKEN, 5)
    assert threads != [threading.current_thread()]


async def test_a_plugin_that_takes_too_long_refuses_and_may_be_asked_again(
    autojump_clock: MockClock, logged: Logged
) -> None:
    gate = threading.Event()
    try:
        answer = await hooks(gate.wait).authenticate(TOKEN, 5)
    finally:
        gate.set()
    assert answer == Refusal("auth_timeout", "the credentials could not be checked in time", retry=True)
    assert trio.current_time() == 5
    assert len(logged("authentication took too long")) == 1


async def test_a_plugin_that_hangs_keeps_no_thread_from_others(autojump_clock: MockClock) -> None:
    gate = threading.Event()
    asked = hooks(gate.wait)
    try:
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(refused, asked)
        free = trio.to_thread.current_default_thread_limiter()
        assert free.borrowed_tokens == 0
    finally:
        gate.set()


# --- authorize, intercept ----------------------------------------------------------------------


def test_one_refusal_suffices() -> None:
    refusal = Refusal("forbidden", "no")
    assert (
        hooks(lambda: None, lambda: refusal, lambda: None).authorize(ANN, Action.SUBSCRIBE, SOURCE) is refusal
    )
    assert hooks(lambda: None).authorize(ANN, Action.SUBSCRIBE, SOURCE) is None


def write_values(batch: Batch) -> Encoded:
    parts = [str(value).encode() for value in batch.columns["value"]]
    return Encoded(b"".join(parts), list(accumulate(map(len, parts))))


VALUES = WireFormat("values", write_values)


def transforms(asked: Hooks) -> Sequence[EventTransform]:
    found = asked.transforms(ANN, SOURCE)
    assert not isinstance(found, Refusal)
    return found


def values(chain: Sequence[EventTransform], *given: object) -> list[str]:
    """What the chain makes of events with these values, one after the other."""
    memo = EncodingMemo(1 << 26, MemoryBudget(1 << 30))
    made = []
    for value in given:
        entry = WindowEntry(Batch({0: 0}, [0], [0], {"value": [value]}, 0), 0)
        encoded = memo.encoded(entry, keyed_format(VALUES, chain))
        if encoded.prefix_counts is None or encoded.prefix_counts[-1]:
            made.append(encoded.buffer.decode())
    return made


def adds(name: str, key: object = None) -> Callable[[], object]:
    def apply(record: Record) -> Record | None:
        return {**record, "value": f"{record['value']}{name}"}

    return lambda: Interceptor(apply, key)


def test_interceptors_run_in_the_order_of_registration() -> None:
    chain = transforms(hooks(adds("a", 1), lambda: None, adds("b", 2)))
    assert values(chain, "-") == ["-ab"]
    assert keyed_format(VALUES, chain).keys == (("plugin0", 0, 1), ("plugin2", 0, 2))


def test_one_without_a_key_shares_with_nobody() -> None:
    asked = hooks(adds("a", 1), adds("b"))
    assert keyed_format(VALUES, transforms(asked)).key != keyed_format(VALUES, transforms(asked)).key


def test_what_one_withholds_the_next_is_not_asked_about() -> None:
    asked: list[Record] = []
    withholds = Interceptor(lambda record: None, 1)
    listens = Interceptor(asked.append, 2)
    chain = transforms(hooks(lambda: withholds, lambda: listens))
    assert values(chain, "-") == []
    assert asked == []


@pytest.mark.parametrize(
    "apply",
    [Raises(ValueError("boom")), lambda record: 1 / 0, lambda record: "text", None, list],
    ids=["raises", "divides", "text", "nothing", "other type"],
)
def test_an_interceptor_that_fails_ends_its_subscriptions_and_is_told_once(
    apply: Callable[..., object], logged: Logged
) -> None:
    asked = hooks(lambda: Interceptor(apply, 1))  # type: ignore[arg-type]
    chain = transforms(asked)
    for _ in range(3):
        with pytest.raises(EncodingFailed, match="an interceptor of news failed"):
            values(chain, "-")
    assert asked.failures == {"interceptor": 3}
    assert len(logged("a plugin failed")) == 1


def test_other_plugins_can_take_their_place() -> None:
    asked = hooks(lambda: Refusal("forbidden", "no"))
    assert asked.authorize(ANN, Action.SUBSCRIBE, SOURCE) is not None
    asked.replace(PluginManager())
    assert asked.authorize(ANN, Action.SUBSCRIBE, SOURCE) is None


def test_who_is_known_is_no_admin_by_that() -> None:
    """A plugin with `authenticate` and without `authorize`."""

    class Who:
        @hookimpl
        def authenticate(self, credential: Credential) -> Identity:
            return ANN

    manager = PluginManager()
    manager.register(Who(), "who")
    asked = Hooks(manager)
    for source in (None, SOURCE):
        for switched_on in (False, True):
            for action in (Action.ADMIN, Action.PUBLISH, Action.COMMIT):
                refusal = asked.authorize(ANN, action, source, switched_on=switched_on)
                assert refusal is not None
                assert refusal.code == "forbidden"
    assert asked.authorize(ANN, Action.SUBSCRIBE, SOURCE) is None
    assert asked.authorize(ANN, Action.REPLAY, SOURCE) is None


def test_a_permit_is_an_answer_and_others_may_still_refuse() -> None:
    refusal = Refusal("forbidden", "no")
    permits = hooks(Permit, lambda: None)
    assert permits.authorize(ANN, Action.ADMIN, None) is None
    assert hooks(Permit, lambda: refusal, Permit).authorize(ANN, Action.ADMIN, None) is refusal
    assert hooks(lambda: None).authorize(ANN, Action.ADMIN, None) is not None


def test_keys_mean_something_within_one_plugin_and_one_configuration() -> None:
    asked = hooks(adds("a", 1), adds("b", 1))
    both = transforms(asked)
    asked.replace(asked._plugins)
    again = transforms(asked)
    one, other = (transforms(hooks(*acts)) for acts in ([adds("a", 1), None_], [None_, adds("b", 1)]))
    assert len({keyed_format(VALUES, chain).key for chain in (both, again, one, other)}) == 4
    assert keyed_format(VALUES, transforms(asked)).key == keyed_format(VALUES, again).key


def None_() -> None:  # noqa: N802
    """No interceptor."""
