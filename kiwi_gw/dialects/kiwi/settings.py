"""The section `kiwi` of the configuration."""

from __future__ import annotations

from kiwi_gw.api import Section
from kiwi_gw.dialects.kiwi.requests import UnknownMembers
from kiwi_gw.dialects.kiwi.results import Envelope


class KiwiSettings(Section):
    """The Kiwi protocol."""

    envelope: Envelope = "flat"
    """`flat` as its document says, `nested` as the original server does (which does not say that credentials
    are about to expire)."""
    unknown_members: UnknownMembers = "refuse"
    """What becomes of a command with a member that there is not (`mod` for `mode`): `refuse` answers with an
    error that names it, `ignore` carries out the rest, as the original server does."""
