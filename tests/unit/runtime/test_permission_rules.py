"""The table of rights, whole."""

from __future__ import annotations

from itertools import product

import pytest

from kiwi_gw.api import Action, Permit, Refusal
from kiwi_gw.runtime.hooks import RULES, decide

NO, YES = Refusal("no", "no"), Permit()

OPEN_TO: dict[Action, tuple[str, str]] = {
    # action: what it takes without authentication, and with it
    Action.SUBSCRIBE: ("", ""),
    Action.REPLAY: ("", ""),
    Action.PUBLISH: ("switch", "permit switch"),
    Action.COMMIT: ("switch", "permit"),
    Action.ADMIN: ("switch", "permit"),
}


def test_every_action_has_a_rule() -> None:
    assert {*RULES} == {*OPEN_TO} == {*Action}


@pytest.mark.parametrize(
    ("action", "authenticates", "switched_on"), list(product(Action, (False, True), (False, True)))
)
@pytest.mark.parametrize("answers", [(), (YES,), (YES, YES)], ids=len)
def test_what_an_action_takes(
    action: Action, authenticates: bool, switched_on: bool, answers: tuple[Permit, ...]
) -> None:
    found = decide(action, answers, authenticates=authenticates, switched_on=switched_on)
    has = {word for word, there in (("permit", answers), ("switch", switched_on)) if there}
    assert (found is None) == has.issuperset(OPEN_TO[action][authenticates].split())
    if found is not None:
        assert found.code == "forbidden"


@pytest.mark.parametrize("action", list(Action))
@pytest.mark.parametrize("answers", [(NO,), (YES, NO), (NO, YES, YES)], ids=len)
def test_a_refusal_forbids_everything(action: Action, answers: tuple[Permit | Refusal, ...]) -> None:
    for authenticates, switched_on in product((False, True), (False, True)):
        assert decide(action, answers, authenticates=authenticates, switched_on=switched_on) is NO
