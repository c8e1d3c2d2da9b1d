"""Asking plugins, with their mistakes kept away from the gateway.

What a hook raises is logged once per hook and line that raises it, with its traceback, counted every time,
and becomes a refusal for the client. The same goes for an answer that is none.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace

import structlog
import trio

from kiwi_gw.errors import EncodingFailed
from kiwi_gw.model import (
    ANONYMOUS,
    Action,
    Credential,
    Identity,
    Interceptor,
    Permit,
    Record,
    Refusal,
    SourceInfo,
)
from kiwi_gw.plugin_manager import PluginManager
from kiwi_gw.runtime.faults import fault, place
from kiwi_gw.runtime.rights import decide

log = structlog.get_logger(__name__)

INTERNAL_ERROR = "internal_error"
_FAILED = Refusal(INTERNAL_ERROR, "the gateway could not decide this; the error is in its log")

_UNASKED = replace(ANONYMOUS, authenticator="")
_NEVER_ASKED = Refusal("no_credentials", "clients must say who they are now", retry=True)

_THREADS = 32
"""Questions to plugins at a time. Threads of their own: a plugin that hangs takes no others with it."""


class Hooks:
    """The hooks of the loaded plugins, safe to call. `failures` counts what they raised, by hook."""

    def __init__(self, plugins: PluginManager) -> None:
        self._plugins = plugins
        self._authenticators = _authenticators(plugins)
        self._generation = (
            0  # of the configuration: an interceptor of the one before is never taken for its own
        )
        self._told: set[tuple[str, str]] = set()
        self._threads = trio.CapacityLimiter(_THREADS)
        self.failures: Counter[str] = Counter()

    def replace(self, plugins: PluginManager) -> None:
        """Ask these plugins from now on, with the configuration that they know now."""
        self._plugins = plugins
        self._authenticators = _authenticators(plugins)
        self._generation += 1

    @property
    def authenticates(self) -> bool:
        """Whether any plugin asks clients who they are."""
        return self._plugins.implements("authenticate")

    async def authenticate(self, credential: Credential, deadline: float) -> Identity | Refusal:
        """Who is it? Runs in a worker thread for at most `deadline` seconds; anonymous if nobody cares."""
        if not self.authenticates:
            return _UNASKED
        plugins = self._plugins

        def ask() -> tuple[str, object]:
            """The first answer, in the order in which pluggy asks, and whose it is; None of the last."""
            owner = ""
            for owner, of in reversed(list(plugins.each("authenticate"))):
                if (answer := of(credential=credential)) is not None:
                    return owner, answer
            return owner, None

        try:
            with trio.fail_after(deadline if deadline > 0 else math.inf):
                owner, answer = await trio.to_thread.run_sync(
                    ask, abandon_on_cancel=True, limiter=self._threads
                )
        except trio.TooSlowError:
            log.warning("authentication took too long", seconds=deadline)
            return Refusal("auth_timeout", "the credentials could not be checked in time", retry=True)
        except BaseException as error:  # noqa: BLE001  a plugin's error is the plugin's, not the client's
            self._failed("authenticate", error)
            return _FAILED
        found = ANONYMOUS if answer is None else self._somebody("authenticate", answer)
        # The rules may have changed while it ran.
        return found if isinstance(found, Refusal) else self.reauthenticate(_let_in(found, owner))

    def reauthenticate(self, identity: Identity) -> Identity | Refusal:
        """Who is it now? A refusal if the plugin that let it in is gone; else the first refusal, else the
        first identity, else the same as before."""
        owner = identity.authenticator
        if (owner == "" and self._authenticators) or (owner and owner not in self._authenticators):
            return _NEVER_ASKED
        if not self._plugins.implements("reauthenticate"):
            return identity
        try:
            answers: Sequence[object] = self._plugins.hook.reauthenticate(identity=identity)
        except BaseException as error:  # noqa: BLE001  as above
            self._failed("reauthenticate", error)
            return _FAILED
        found = [self._somebody("reauthenticate", answer) for answer in answers]
        refusal = next((item for item in found if isinstance(item, Refusal)), None)
        if refusal is not None:
            return refusal
        return next((_let_in(item, owner) for item in found if isinstance(item, Identity)), identity)

    def reauthentication_due(self) -> bool:
        """Whether a plugin wants every identity to be judged again. Each is asked, whatever others say or
        raise: an answer may be given once only."""
        due = False
        for _, ask in self._plugins.each("reauthentication_due"):
            try:
                due = bool(ask()) or due
            except BaseException as error:  # noqa: BLE001  as above
                self._failed("reauthentication_due", error)
        return due

    def authorize(
        self, identity: Identity, action: Action, source: SourceInfo | None, *, switched_on: bool = False
    ) -> Refusal | None:
        """May it? None, or why not (`rights`). source: None for the gateway as a whole."""
        try:
            answers: Sequence[object] = self._plugins.hook.authorize(
                identity=identity, action=action, source=source
            )
        except BaseException as error:  # noqa: BLE001  as above
            self._failed("authorize", error)
            return _FAILED
        found: list[Permit | Refusal] = []
        for answer in answers:
            if not isinstance(answer, Permit | Refusal):
                self._failed("authorize", _wrong("a Permit, a Refusal or None", answer))
                return _FAILED
            found.append(answer)
        return decide(action, found, authenticates=self.authenticates, switched_on=switched_on)

    def intercept(self, identity: Identity, source: SourceInfo) -> Interceptor | Refusal | None:
        """The interceptors of all plugins as one, or None; a Refusal if a plugin failed."""
        chain: list[Interceptor] = []
        keys: list[Hashable] = []
        for name, ask in self._plugins.each("intercept"):
            try:
                item = ask(identity=identity, source=source)
            except BaseException as error:  # noqa: BLE001  as above
                self._failed("intercept", error)
                return _FAILED
            if item is None:
                continue
            if not isinstance(item, Interceptor):
                self._failed("intercept", _wrong("an Interceptor or None", item))
                return _FAILED
            if not _hashable(item.key):
                self._failed("intercept", _wrong("an Interceptor whose key is hashable or None", item.key))
                return _FAILED
            chain.append(self._guarded(item, source))
            # A plugin's key means something among its own only, and only until the next reload.
            keys.append(None if item.key is None else (name, self._generation, item.key))
        if not chain:
            return None
        key = None if None in keys else tuple(keys)
        return Interceptor(_one_after_the_other([item.apply for item in chain]), key)

    def _somebody(self, hook: str, answer: object) -> Identity | Refusal:
        """An answer that is an identity or a refusal; else it is the plugin's mistake."""
        if isinstance(answer, Refusal):
            return answer
        if not isinstance(answer, Identity):
            self._failed(hook, _wrong("an Identity, a Refusal or None", answer))
            return _FAILED
        if _is_time(answer.expires_at):
            return answer
        wanted = "an Identity whose expires_at is seconds since the epoch, and finite, or None"
        self._failed(hook, _wrong(wanted, answer.expires_at))
        return _FAILED

    def _guarded(self, item: Interceptor, source: SourceInfo) -> Interceptor:
        def apply(record: Record) -> Record | None:
            try:
                changed = item.apply(record)
                if changed is not None and not isinstance(changed, Mapping):
                    raise _wrong("a record or None", changed)  # noqa: TRY301
            except BaseException as error:
                self._failed("interceptor", error)
                raise EncodingFailed(f"an interceptor of {source.id} failed") from error
            return changed

        return Interceptor(apply, item.key)

    def _failed(self, hook: str, error: BaseException) -> None:
        """Counts and tells; raises again what is not the plugin's fault."""
        if fault(error) is None:
            raise error
        self.failures[hook] += 1
        kind = (hook, place(error))
        if kind not in self._told and len(self._told) < 1_000:
            self._told.add(kind)
            log.error("a plugin failed", hook=hook, exc_info=error)


def _authenticators(plugins: PluginManager) -> frozenset[str]:
    return frozenset(name for name, _ in plugins.each("authenticate"))


def _let_in(identity: Identity, owner: str | None) -> Identity:
    return identity if identity.authenticator == owner else replace(identity, authenticator=owner)


def _is_time(expires_at: object) -> bool:
    """Whether it is, though a plugin need not be checked by mypy. What is not finite would never be over."""
    if isinstance(expires_at, float):
        return math.isfinite(expires_at)
    return expires_at is None or (isinstance(expires_at, int) and not isinstance(expires_at, bool))


def _one_after_the_other(
    steps: Sequence[Callable[[Record], Record | None]],
) -> Callable[[Record], Record | None]:
    if len(steps) == 1:
        return steps[0]

    def apply(record: Record) -> Record | None:
        changed: Record | None = record
        for step in steps:
            if changed is None:
                return None
            changed = step(changed)
        return changed

    return apply


def _hashable(key: object) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return True


def _wrong(wanted: str, answer: object) -> TypeError:
    return TypeError(f"must return {wanted}, not {type(answer).__name__}")
