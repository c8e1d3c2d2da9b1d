from __future__ import annotations

from kiwi_gw.core.effects import Effects


def test_operations_that_are_begun_by_effects_take_no_depth_and_keep_the_order() -> None:
    """As when thousands of subscriptions are woken at once, and each looks what there is for it."""
    effects = Effects()
    called: list[int] = []

    def woken(number: int) -> None:
        called.append(number)
        effects.add(lambda: called.append(-number))
        effects.hand_out()
        assert called[-1] == number, "what the operation has added comes behind what was waiting"

    for number in range(1, 5_001):
        effects.add(lambda number=number: woken(number))  # type: ignore[misc]
    effects.hand_out()
    assert called == [*range(1, 5_001), *range(-1, -5_001, -1)]


def test_one_that_fails_does_not_keep_the_others_back() -> None:
    effects = Effects()
    called: list[str] = []
    effects.add(lambda: called.append(str(1 / 0)))
    effects.add(lambda: called.append("the next"))
    try:
        effects.hand_out()
    except ZeroDivisionError:
        effects.hand_out()
    assert called == ["the next"]
