"""Who may connect, and what they may read: static tokens, users with passwords, and JWTs from the `tokens:`
section.

Entry point `tokens` (group `kiwi_gw.plugins`). JWTs need the extra `jwt`, users `password`.
"""

from __future__ import annotations

from kiwi_tokens.plugin import TokensPlugin as TokensPlugin
from kiwi_tokens.settings import TokensSettings as TokensSettings

plugin = TokensPlugin()
