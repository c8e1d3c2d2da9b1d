"""The hooks. One immutable state, replaced as a whole by `configure`; hooks take it once and work on it,
so none ever sees half of an old configuration and half of a new one."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kiwi_gw.api import (
    ANONYMOUS,
    Action,
    ConfigSection,
    Credential,
    Diagnostic,
    HeadCredential,
    Identity,
    Password,
    Permit,
    PluginContext,
    PluginError,
    Refusal,
    RefusalCode,
    Section,
    SourceInfo,
    hookimpl,
)
from kiwi_tokens.credentials import NO_TOKEN, invalid, token_of, well_formed
from kiwi_tokens.password_hashes import PasswordChecks
from kiwi_tokens.rights import RolePermissions
from kiwi_tokens.settings import JwtSettings, TokensSettings
from kiwi_tokens.static_tokens import StaticTokens, StoredToken
from kiwi_tokens.users import PREFIX, StoredUser, Users
from kiwi_tokens.writers import writers

if TYPE_CHECKING:  # pyjwt is an extra
    from kiwi_tokens.jwt_tokens import JwtTokens, SignedBy

SECTION = "tokens"
ORIGIN = "kiwi_tokens"
"""The claim in which an identity's `CredentialOrigin` is kept."""

_NOT_CONFIGURED = Refusal(RefusalCode.NOT_CONFIGURED, "the gateway cannot check tokens yet", retry=True)
_NO_TOKEN = Refusal(NO_TOKEN, "a token is needed: Authorization: Bearer", retry=True)
_PERMIT = Permit()
_FORBIDDEN = Refusal(RefusalCode.FORBIDDEN, "not allowed")
_EXPIRED = Refusal(RefusalCode.TOKEN_EXPIRED, "the token has expired", retry=True)
_REVOKED = Refusal("revoked", "the token is not valid any more")


@dataclass(frozen=True, slots=True)
class CredentialOrigin:
    """Say how an identity of this plugin came about: by the static token or the user with this `fingerprint`,
    by a signature, or (by neither) without credentials. It cannot be forged: a claim in a token is never of
    this type."""

    fingerprint: str = ""
    signed: SignedBy | None = None


@dataclass(frozen=True, slots=True)
class _Configured:
    settings: TokensSettings
    static: StaticTokens
    users: Users
    jwt: JwtTokens | None
    rights: RolePermissions


class TokensPlugin:
    """Ask for a token on every connection, and allow what the roles allow and nothing else.

    clock: seconds since the epoch, for the expiry of static tokens and in `authorize`.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._own_key = secrets.token_bytes(32)  # over reloads: they end no session
        self._checks = PasswordChecks()
        self._state: _Configured | None = None

    @hookimpl
    def config_sections(self) -> Sequence[ConfigSection]:
        return [ConfigSection(SECTION, TokensSettings, required=True)]

    @hookimpl
    def configure(self, context: PluginContext) -> None:
        settings = context.section(SECTION)
        if not isinstance(settings, TokensSettings):
            raise TypeError(f"the section {SECTION} is a {type(settings).__name__}")
        if wrong := lacks_key(context, settings):
            raise PluginError(f"tokens.sessions.key: {wrong}")
        key = settings.sessions.key
        self._state = _Configured(
            settings=settings,
            static=StaticTokens(settings.static),
            users=Users(
                settings.users,
                self._own_key if key is None else key.get_secret_value().encode(),
                self._checks,
            ),
            jwt=self._jwt(settings.jwt),
            rights=RolePermissions(settings.roles),
        )

    @hookimpl
    def check(
        self, context: PluginContext, sources: Sequence[Section]
    ) -> Callable[[], Awaitable[Sequence[Diagnostic]]] | None:
        settings = context.sections.get(SECTION)
        if not isinstance(settings, TokensSettings):
            return None
        found = list(writers(settings, context.sources))
        if (wrong := lacks_key(context, settings)) is not None:
            found.append(Diagnostic("error", "tokens", wrong, (SECTION,)))
        if not found:
            return None

        async def say() -> Sequence[Diagnostic]:
            return found

        return say

    # Last, and never without an answer: other plugins may know other credentials, but what none
    # knows is refused here and does not become anonymous.
    @hookimpl(trylast=True)
    def authenticate(self, credential: Credential) -> Identity | Refusal:
        state = self._state
        if state is None:
            return _NOT_CONFIGURED
        if isinstance(credential, Password):
            return self._by_password(state, credential)
        if not isinstance(credential, HeadCredential):
            return self._check(state, credential.text) if credential.text else _NO_TOKEN
        settings = state.settings
        token = token_of(credential, settings.query_parameter, settings.subprotocol_prefix)
        if isinstance(token, Refusal):
            return token
        if token is not None:
            return self._check(state, token)
        return _anonymous(state)

    @hookimpl
    def reauthenticate(self, identity: Identity) -> Identity | Refusal | None:
        return _NOT_CONFIGURED if self._state is None else self._judge(self._state, identity)

    @hookimpl
    def reauthentication_due(self) -> bool:
        return self._state is not None and self._state.jwt is not None and self._state.jwt.keys_changed()

    @hookimpl
    def authorize(self, identity: Identity, action: Action, source: SourceInfo | None) -> Permit | Refusal:
        state = self._state
        if state is None:
            return _NOT_CONFIGURED
        if identity.expires_at is not None and identity.expires_at <= self._clock():
            return _EXPIRED
        now = self._judge(state, identity) or identity  # those of other plugins have the roles that they have
        if isinstance(now, Refusal):
            return now
        source_id = None if source is None else source.id
        return _PERMIT if state.rights.allow(now.roles, action, source_id) else _FORBIDDEN

    def _jwt(self, settings: JwtSettings | None) -> JwtTokens | None:
        if settings is None:
            return None
        old = self._state
        if old is not None and old.settings.jwt == settings:
            return old.jwt  # with the keys that it has fetched
        from kiwi_tokens.jwt_tokens import JwtTokens

        return JwtTokens(settings, old.jwt if old is not None else None)

    def _check(self, state: _Configured, token: str) -> Identity | Refusal:
        if not well_formed(token):
            return invalid("the token is not valid")
        entry = state.static.find(token)
        if entry is not None:
            return self._static(entry)
        if token.startswith(PREFIX):
            return self._by_session(state, token)
        if state.jwt is None:
            return invalid("the token is not valid")
        found = state.jwt.check(token, self._clock())
        if isinstance(found, Refusal):
            return found
        identity, signed = found
        return _with_origin(identity, CredentialOrigin(signed=signed))

    def _by_password(self, state: _Configured, credential: Password) -> Identity | Refusal:
        if not state.users:
            return replace(_NO_TOKEN, message="a token is needed; no user is known by a password")
        found = state.users.find(credential.user, credential.password)
        if isinstance(found, Refusal):
            return found
        until = int(self._clock()) + state.settings.sessions.ttl // 1000
        return replace(_of_user(found, until), issued_token=state.users.issue(found, until))

    def _by_session(self, state: _Configured, token: str) -> Identity | Refusal:
        session = state.users.read(token)
        if session is None:
            return invalid("the token is not valid")
        if session.expires_at <= self._clock():
            return _EXPIRED
        user = state.users.by_fingerprint(session.fingerprint)
        return _REVOKED if user is None else _of_user(user, session.expires_at)

    def _static(self, entry: StoredToken) -> Identity | Refusal:
        if entry.expires_at is not None and entry.expires_at <= self._clock():
            return _EXPIRED
        return Identity(
            entry.name, entry.roles, {ORIGIN: CredentialOrigin(entry.fingerprint)}, entry.expires_at
        )

    def _judge(self, state: _Configured, identity: Identity) -> Identity | Refusal | None:
        """Return the identity by this configuration, maybe a later one than it came with. None: an identity
        of another plugin."""
        origin = identity.claims.get(ORIGIN)
        if not isinstance(origin, CredentialOrigin):
            return None
        if origin.signed is not None:
            if state.jwt is None:
                return _REVOKED
            found = state.jwt.judge(identity, origin.signed, self._clock())
            return found if isinstance(found, Refusal) else _with_origin(found, origin)
        if not origin.fingerprint:
            return _anonymous(state)
        user = state.users.by_fingerprint(origin.fingerprint)
        if user is not None:
            return _of_user(user, identity.expires_at)
        entry = state.static.by_fingerprint(origin.fingerprint)
        return _REVOKED if entry is None else self._static(entry)


def lacks_key(context: PluginContext, settings: TokensSettings) -> str | None:
    """Say what is wrong where a session would be good with one of several workers only."""
    if context.workers == 1 or not settings.users or settings.sessions.key is not None:
        return None
    return (
        f"server.workers is {context.workers}: they need one key, so that each takes the tokens of the others"
    )


def _of_user(user: StoredUser, expires_at: float | None) -> Identity:
    return Identity(user.name, user.roles, {ORIGIN: CredentialOrigin(user.fingerprint)}, expires_at)


def _anonymous(state: _Configured) -> Identity | Refusal:
    anonymous = state.settings.anonymous
    if anonymous is None:
        return _NO_TOKEN
    return _with_origin(replace(ANONYMOUS, roles=frozenset(anonymous.roles)), CredentialOrigin())


def _with_origin(identity: Identity, origin: CredentialOrigin) -> Identity:
    return replace(identity, claims={**identity.claims, ORIGIN: origin})
