"""What evaluating queries may take of the processor, and who is charged for it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Final

from kiwi_gw.core.accounts import Account, ClientAccount, Payer

_BILL_SECONDS: Final = 0.002
"""Connections that share a query pay together when so much has come up."""

_BILLED: Final = 32
"""So many of them at a time, in turns: to charge all of ten thousand takes longer than what they pay for."""


@dataclass(frozen=True, slots=True)
class CpuShares:
    """Of the time of the loop, while others wait: 0 to 1, 0 for no limit."""

    all: float = 0.25
    connection: float = 0.1
    query: float = 0.05


class EvaluationCosts:
    """What the evaluations of one group have used. payers: the accounts of its connections, with the number
    of their subscriptions."""

    __slots__ = ("_light_user", "own", "payers", "rest_until", "unbilled")

    def __init__(self, own: Account) -> None:
        self.own = own
        self.payers: dict[ClientAccount, int] = {}
        self.unbilled = 0.0
        self.rest_until = 0.0
        self._light_user = True

    def add_payer(self, payer: Payer | None) -> None:
        """Count one subscription more of this payer; None: nobody pays for it."""
        if payer is not None:
            self.payers[payer.account] = self.payers.get(payer.account, 0) + 1

    def remove_payer(self, payer: Payer | None) -> None:
        """Count one less."""
        if payer is not None:
            self.payers[payer.account] -= 1
            if not self.payers[payer.account]:
                del self.payers[payer.account]

    def charge(self, seconds: float, now: float) -> None:
        """Charge the group, and when enough has come up, its payers, who share it."""
        self.own.charge(seconds, now)
        self.unbilled += seconds
        if self.payers and (self.unbilled >= _BILL_SECONDS or len(self.payers) == 1):
            billed = list(islice(self.payers, _BILLED))
            share, self.unbilled = self.unbilled / len(billed), 0.0
            for payer in billed:
                payer.charge(share, now)
            self._light_user = any(payer.light_user(now) for payer in billed)
            self.rest_until = now
            if len(billed) == len(self.payers):
                self.rest_until += min(payer.wait_seconds(now) for payer in billed)
            else:  # of so many one has something left; the next ones pay next
                for payer in billed:
                    self.payers[payer] = self.payers.pop(payer)

    def light_user(self, now: float) -> bool:
        """Say whether one of its connections uses little."""
        if len(self.payers) == 1:
            (payer,) = self.payers
            return payer.light_user(now)
        return self._light_user

    def wait_seconds(self, now: float) -> float:
        """Return the seconds until it may be evaluated again; 0: now."""
        if len(self.payers) == 1:
            (payer,) = self.payers
            return max(self.own.wait_seconds(now), payer.wait_seconds(now))
        return max(self.own.wait_seconds(now), self.rest_until - now, 0.0)
