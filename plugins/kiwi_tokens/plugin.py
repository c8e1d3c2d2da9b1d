"""The hooks. One immutable state, replaced as a whole by `configure`; hooks take it once and work on it,
so none ever sees half of an old configuration and half of a new one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kiwi_gw.api import (
    ANONYMOUS,
    Action,
    ConfigSection,
    Credential,
    Head,
    Identity,
    Password,
    PluginContext,
    Refusal,
    SourceInfo,
    hookimpl,
)
from kiwi_tokens.credentials import NO_TOKEN, invalid, token_of, well_formed
from kiwi_tokens.rights import Rights
from kiwi_tokens.settings import JwtSettings, TokensSettings
from kiwi_tokens.static_tokens import StaticTokens

if TYPE_CHECKING:  # pyjwt is an extra
    from kiwi_tokens.jwt_tokens import JwtTokens

SECTION = "tokens"
ORIGIN = "kiwi_tokens"
"""The claim in which an identity's `Origin` is kept."""

_NOT_CONFIGURED = Refusal("not_configured", "the gateway cannot check tokens yet", retry=True)
_NO_TOKEN = Refusal(NO_TOKEN, "a token is needed: Authorization: Bearer")
_FORBIDDEN = Refusal("forbidden", "not allowed")
_EXPIRED = Refusal("token_expired", "the token has expired", retry=True)
_REVOKED = Refusal("revoked", "the token is not valid any more")


class Origin(str):
    """How an identity of this plugin came about. Its type cannot be forged: a claim in a token, or what
    another plugin takes from its users, is never one."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class _State:
    settings: TokensSettings
    static: StaticTokens
    jwt: JwtTokens | None
    rights: Rights


class TokensPlugin:
    """Asks for a token on every connection, and allows what the roles allow and nothing else.

    clock: seconds since the epoch, for the expiry of static tokens and in `authorize`.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._state: _State | None = None

    @hookimpl
    def config_sections(self) -> Sequence[ConfigSection]:
        return [ConfigSection(SECTION, TokensSettings, required=True)]

    @hookimpl
    def configure(self, context: PluginContext) -> None:
        settings = context.section(SECTION)
        if not isinstance(settings, TokensSettings):
            raise TypeError(f"the section {SECTION} is a {type(settings).__name__}")
        self._state = _State(
            settings=settings,
            static=StaticTokens(settings.static),
            jwt=self._jwt(settings.jwt),
            rights=Rights(settings.roles),
        )

    # Last, and never without an answer: other plugins may know other credentials, but what nobody
    # knows is refused here and does not become anonymous.
    @hookimpl(trylast=True)
    def authenticate(self, credential: Credential) -> Identity | Refusal:
        state = self._state
        if state is None:
            return _NOT_CONFIGURED
        if isinstance(credential, Password):
            return replace(_NO_TOKEN, message="a token is needed; no user is known by a password")
        if not isinstance(credential, Head):
            return self._check(state, credential.text)
        settings = state.settings
        token = token_of(credential, settings.query_parameter, settings.subprotocol_prefix)
        if isinstance(token, Refusal):
            return token
        if token is not None:
            return self._check(state, token)
        if settings.anonymous is None:
            return _NO_TOKEN
        roles = frozenset(settings.anonymous.roles)
        return replace(ANONYMOUS, roles=roles, claims={ORIGIN: Origin("anonymous")})

    @hookimpl
    def authorize(self, identity: Identity, action: Action, source: SourceInfo | None) -> Refusal | None:
        state = self._state
        if state is None:
            return _NOT_CONFIGURED
        if identity.expires_at is not None and identity.expires_at <= self._clock():
            return _EXPIRED
        roles = _current_roles(state, identity)
        if roles is None:
            return _REVOKED
        # The gateway as a whole is the source without a name: of all patterns only `*` matches it.
        source_id = "" if source is None else source.id
        return None if state.rights.allow(roles, action, source_id) else _FORBIDDEN

    def _jwt(self, settings: JwtSettings | None) -> JwtTokens | None:
        if settings is None:
            return None
        old = self._state
        if old is not None and old.settings.jwt == settings:
            return old.jwt  # with the keys that it has fetched
        from kiwi_tokens.jwt_tokens import JwtTokens

        return JwtTokens(settings)

    def _check(self, state: _State, token: str) -> Identity | Refusal:
        if not well_formed(token):
            return invalid("the token is not valid")
        entry = state.static.find(token)
        if entry is not None:
            if entry.expires_at is not None and entry.expires_at <= self._clock():
                return _EXPIRED
            return Identity(entry.name, entry.roles, {ORIGIN: Origin(entry.mark)}, entry.expires_at)
        if state.jwt is None:
            return invalid("the token is not valid")
        identity = state.jwt.check(token)
        if isinstance(identity, Refusal):
            return identity
        return replace(identity, claims={**identity.claims, ORIGIN: _jwt_origin(state.jwt)})


def _current_roles(state: _State, identity: Identity) -> frozenset[str] | None:
    """The roles that an identity has now, which may not be those it came with: the configuration may
    have been reloaded. None if it would not be let in any more. Those of other plugins keep theirs."""
    origin = identity.claims.get(ORIGIN)
    if not isinstance(origin, Origin):
        return identity.roles
    if origin == "anonymous":
        anonymous = state.settings.anonymous
        return None if anonymous is None else frozenset(anonymous.roles)
    if origin.startswith("jwt:"):
        return identity.roles if state.jwt is not None and origin == _jwt_origin(state.jwt) else None
    entry = state.static.marked(origin)
    return None if entry is None else entry.roles


def _jwt_origin(tokens: JwtTokens) -> Origin:
    return Origin(f"jwt:{tokens.issuer}")
