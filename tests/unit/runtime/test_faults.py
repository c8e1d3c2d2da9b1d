from __future__ import annotations

import asyncio

import pytest
import trio

from kiwi_gw.api import SourceFailed
from kiwi_gw.errors import EncodingFailed
from kiwi_gw.runtime.plugin_faults import FaultBarrier, fault, fault_key, words


async def cancelled() -> BaseException:
    """Trio's own: nobody else can make one."""
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.sleep_forever()
        except trio.Cancelled as error:
            return error
    raise AssertionError


async def test_cancellation_is_nobodys_fault() -> None:
    one = await cancelled()
    assert fault(one) is None
    assert fault(BaseExceptionGroup("", [one, BaseExceptionGroup("", [one])])) is None


async def test_a_fault_comes_out_of_its_groups() -> None:
    error = SourceFailed("no")
    assert fault(error) is error
    assert fault(ExceptionGroup("", [ExceptionGroup("", [error])])) is error
    assert fault(BaseExceptionGroup("", [await cancelled(), ExceptionGroup("", [error])])) is error


async def test_several_faults_stay_together() -> None:
    found = fault(BaseExceptionGroup("", [ValueError("a"), await cancelled(), KeyError("b")]))
    assert isinstance(found, ExceptionGroup)
    assert [str(item) for item in found.exceptions] == ["a", "'b'"]


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError()])
def test_what_would_end_the_gateway_is_a_fault(error: BaseException) -> None:
    assert fault(error) is error
    assert fault(BaseExceptionGroup("", [error])) is error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), GeneratorExit()])
def test_what_is_not_a_plugins_comes_out(error: BaseException) -> None:
    with pytest.raises(type(error)):
        fault(error)
    with pytest.RaisesGroup(type(error)):
        fault(BaseExceptionGroup("", [ValueError(), error]))


class Unprintable(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise RuntimeError("not even that")


def test_words_for_what_cannot_be_printed() -> None:
    assert words(ValueError("no such thing")) == "ValueError: no such thing"
    assert "Unprintable" in words(Unprintable())


def raised(message: str) -> BaseException:
    def fail() -> None:
        raise ValueError(message)

    with pytest.raises(ValueError, match=message) as caught:
        fail()
    return caught.value


def test_the_place_is_the_line_and_not_the_words() -> None:
    assert fault_key(raised("for ann")) == fault_key(raised("for bob"))
    assert fault_key(ValueError("for ann")) != fault_key(ValueError("for bob"))


def test_what_is_to_go_through_comes_out_of_its_group() -> None:
    told: list[BaseException] = []
    barrier = FaultBarrier(EncodingFailed, told=told.append)
    with pytest.raises(EncodingFailed, match="no such column"), barrier:
        raise ExceptionGroup("", [EncodingFailed("no such column")])
    assert told == []
