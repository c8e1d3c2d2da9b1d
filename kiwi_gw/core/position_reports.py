"""Letting clients know from time to time where their subscriptions are, if they have asked for it."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from kiwi_gw.core.notices import PositionsReported
from kiwi_gw.core.states import SubscriptionState
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.model import Positions


@dataclass(slots=True)
class _PositionReport:
    """every: seconds. positions, at: of the last report."""

    every: float
    positions: Positions | None = None
    at: float = -inf


class PositionReports:
    """The subscriptions of one source that get reports."""

    def __init__(self) -> None:
        self._reports: dict[Subscription, _PositionReport] = {}

    def add(self, subscription: Subscription, every: float) -> None:
        self._reports[subscription] = _PositionReport(every)

    def remove(self, subscription: Subscription) -> None:
        self._reports.pop(subscription, None)

    def sweep(self, now: float) -> None:
        """Report to those whose time has come, if their positions have changed."""
        for subscription, report in self._reports.items():
            if subscription.state is not SubscriptionState.OPENING and now - report.at >= report.every:
                here = subscription.positions
                if here != report.positions:
                    report.positions, report.at = dict(here), now
                    hub = subscription.hub
                    subscription.tell(PositionsReported(subscription.handle, hub.info, hub.dump(here)))
