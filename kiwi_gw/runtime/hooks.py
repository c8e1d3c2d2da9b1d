"""Asking plugins, with their mistakes kept away from the gateway.

What a hook raises is logged once per hook and line that raises it, with its traceback, counted every time,
and becomes a refusal for the client. The same goes for an answer that is none.

Who may do what: the answers of plugins and the switches of the configuration are weighed by one table. A
refusal always forbids. What it takes beside that differs by action:

| action | where a plugin authenticates clients | where none does |
|---|---|---|
| subscribe, replay | nothing | nothing |
| publish | a permit, and the switch of the source | the switch of the source |
| commit | a permit | the switch of the source |
| admin | a permit | a local admin address, or its switch |
"""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import structlog
import trio

from kiwi_gw.api import PluginContext, QueryEngine
from kiwi_gw.codes import RefusalCode
from kiwi_gw.core.transforms import check, per_record
from kiwi_gw.errors import EncodingFailed
from kiwi_gw.model import (
    ANONYMOUS,
    Action,
    Batch,
    Credential,
    EngineQuery,
    EventTransform,
    Identity,
    Interceptor,
    Permit,
    Refusal,
    SourceInfo,
    Transformed,
)
from kiwi_gw.plugin_manager import PluginManager
from kiwi_gw.runtime.plugin_faults import FaultBarrier, fault_key

log = structlog.get_logger(__name__)

_FAILED = Refusal(RefusalCode.INTERNAL_ERROR, "the gateway could not decide this; the error is in its log")

_UNASKED = replace(ANONYMOUS, authenticator="")
_NEVER_ASKED = Refusal(RefusalCode.NO_CREDENTIALS, "clients must say who they are now", retry=True)

_NO_ENGINE = Refusal(RefusalCode.NO_ENGINE, "nothing here runs queries that need more than one event")

_THREADS = 32
"""Questions to plugins at a time. Threads of their own: a plugin that hangs takes no others with it."""


Apply = Callable[[Batch], Transformed]


class ConfigSwitch(enum.Enum):
    """When the configuration must have opened something."""

    NEVER = "never"
    UNAUTHENTICATED = "unauthenticated"  # where no plugin says who the clients are
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class PermissionRule:
    """permit: whether a plugin must say yes, where one authenticates clients."""

    permit: bool
    switch: ConfigSwitch


RULES: Mapping[Action, PermissionRule] = {
    Action.SUBSCRIBE: PermissionRule(permit=False, switch=ConfigSwitch.NEVER),
    Action.REPLAY: PermissionRule(permit=False, switch=ConfigSwitch.NEVER),
    Action.PUBLISH: PermissionRule(permit=True, switch=ConfigSwitch.ALWAYS),
    Action.COMMIT: PermissionRule(permit=True, switch=ConfigSwitch.UNAUTHENTICATED),
    Action.ADMIN: PermissionRule(permit=True, switch=ConfigSwitch.UNAUTHENTICATED),
}


def decide(
    action: Action, answers: Iterable[Permit | Refusal], *, authenticates: bool, switched_on: bool
) -> Refusal | None:
    """Why it may not be done; None: it may.

    answers: of all plugins that have an opinion. authenticates: whether any plugin asks clients who they
    are. switched_on: whether the configuration opens it, where that counts.
    """
    rule = RULES[action]
    permitted = False
    for answer in answers:
        if isinstance(answer, Refusal):
            return answer
        permitted = True
    if rule.permit and authenticates and not permitted:
        return Refusal(RefusalCode.FORBIDDEN, f"this needs the right to `{action.value}`")
    switched = rule.switch is ConfigSwitch.ALWAYS or (
        rule.switch is ConfigSwitch.UNAUTHENTICATED and not authenticates
    )
    if switched and not switched_on:
        return Refusal(RefusalCode.FORBIDDEN, f"the configuration does not say `{action.value}: true`")
    return None


class Hooks:
    """The hooks of the loaded plugins, safe to call. `failures` counts what they raised, by hook."""

    def __init__(self, plugins: PluginManager) -> None:
        self._plugins = plugins
        self._authenticators = _authenticators(plugins)
        self.generation = 0  # of the configuration: a transform of the one before is never taken for its own
        self._told: set[tuple[str, str]] = set()
        self._threads = trio.CapacityLimiter(_THREADS)
        self.failures: Counter[str] = Counter()

    def replace(self, plugins: PluginManager) -> None:
        """Ask these plugins from now on, with the configuration that they know now."""
        self._plugins = plugins
        self._authenticators = _authenticators(plugins)
        self.generation += 1

    @property
    def authenticates(self) -> bool:
        """Whether any plugin asks clients who they are."""
        return bool(self._authenticators)

    async def authenticate(self, credential: Credential, deadline: float) -> Identity | Refusal:
        """Ask who it is, in a worker thread, for at most `deadline` seconds; anonymous if no plugin minds."""
        if not self.authenticates:
            return _UNASKED
        plugins = self._plugins

        def ask() -> tuple[str, object]:
            """Return the first answer, in the order in which pluggy asks, and whose it is; None of the
            last."""
            owner = ""
            for owner, of in reversed(list(plugins.each("authenticate"))):
                if (answer := of(credential=credential)) is not None:
                    return owner, answer
            return owner, None

        with (
            self._asking("authenticate"),
            trio.move_on_after(deadline if deadline > 0 else math.inf) as scope,
        ):
            owner, answer = await trio.to_thread.run_sync(ask, abandon_on_cancel=True, limiter=self._threads)
            found = ANONYMOUS if answer is None else self._judged("authenticate", answer)
            if isinstance(found, Refusal):
                return found
            now = self.reauthenticate(_let_in(found, owner))  # the rules may have changed while it ran
            return now if isinstance(now, Refusal) else replace(now, issued_token=found.issued_token)
        if not scope.cancelled_caught:
            return _FAILED
        log.warning("authentication took too long", seconds=deadline)
        return Refusal(RefusalCode.AUTH_TIMEOUT, "the credentials could not be checked in time", retry=True)

    def reauthenticate(self, identity: Identity) -> Identity | Refusal:
        """Ask who it is now. A refusal if the plugin that let it in is gone; else the first refusal, else the
        first identity, else the same as before."""
        owner = identity.authenticator
        if (owner == "" and self._authenticators) or (owner and owner not in self._authenticators):
            return _NEVER_ASKED
        if not self._plugins.implements("reauthenticate"):
            return identity
        with self._asking("reauthenticate"):
            answers: Sequence[object] = self._plugins.hook.reauthenticate(identity=identity)
            found = [self._judged("reauthenticate", answer) for answer in answers]
            refusal = next((item for item in found if isinstance(item, Refusal)), None)
            if refusal is not None:
                return refusal
            return next((_let_in(item, owner) for item in found if isinstance(item, Identity)), identity)
        return _FAILED

    def reauthentication_due(self) -> bool:
        """Say whether a plugin wants every identity to be judged again. Each is asked, whatever others say or
        raise: an answer may be given once only."""
        due = False
        for _, ask in self._plugins.each("reauthentication_due"):
            with self._asking("reauthentication_due"):
                due = bool(ask()) or due
        return due

    def authorize(
        self, identity: Identity, action: Action, source: SourceInfo | None, *, switched_on: bool = False
    ) -> Refusal | None:
        """Ask whether it may. None, or why not (`decide`). source: None for the gateway as a
        whole."""
        found: list[Permit | Refusal] = []
        with self._asking("authorize"):
            for answer in self._plugins.hook.authorize(identity=identity, action=action, source=source):
                if not isinstance(answer, Permit | Refusal):
                    return self._failed("authorize", _wrong("a Permit, a Refusal or None", answer))
                found.append(answer)
            return decide(action, found, authenticates=self.authenticates, switched_on=switched_on)
        return _FAILED

    def transforms(self, identity: Identity, source: SourceInfo) -> tuple[EventTransform, ...] | Refusal:
        """Ask all plugins what they change of the events for this client; a Refusal if one failed."""
        chain: list[EventTransform] = []
        with self._asking("intercept"):
            for name, ask in self._plugins.each("intercept"):
                item = ask(identity=identity, source=source)
                if item is None:
                    continue
                if not isinstance(item, EventTransform | Interceptor):
                    wanted = "an EventTransform, an Interceptor or None"
                    return self._failed("intercept", _wrong(wanted, item))
                hash(item.key)  # raises where it can be no key
                apply = item.apply if isinstance(item, EventTransform) else per_record(item.apply)
                # A plugin's key means something among its own only, and only until the next reload.
                key = None if item.key is None else (name, self.generation, item.key)
                chain.append(EventTransform(self._guarded(apply, source), key))
            return tuple(chain)
        return _FAILED

    def query_engine(self, query: EngineQuery, context: PluginContext) -> QueryEngine | Refusal:
        """Find what runs this query; a Refusal where nothing does, or it cannot."""
        with self._asking("query_engine"):
            engine: object = self._plugins.hook.query_engine()
            if engine is None:
                return _NO_ENGINE
            if not isinstance(engine, QueryEngine):
                return self._failed("query_engine", _wrong("a QueryEngine or None", engine))
            words = engine.refusal(query, context)
            return engine if words is None else Refusal(RefusalCode.QUERY, str(words))
        return _FAILED

    def _judged(self, hook: str, answer: object) -> Identity | Refusal:
        """Return an answer that is an identity or a refusal; else it is the plugin's mistake."""
        if isinstance(answer, Refusal):
            return answer
        if not isinstance(answer, Identity):
            return self._failed(hook, _wrong("an Identity, a Refusal or None", answer))
        if _is_time(answer.expires_at):
            return answer
        wanted = "an Identity whose expires_at is seconds since the epoch, and finite, or None"
        return self._failed(hook, _wrong(wanted, answer.expires_at))

    def _guarded(self, apply: Apply, source: SourceInfo) -> Apply:
        def guarded(batch: Batch) -> Transformed:
            with self._asking("interceptor", EncodingFailed) as barrier:
                changed = apply(batch)
                if not isinstance(changed, Transformed):
                    raise _wrong("a Transformed", changed)
                check(changed, len(batch))
                return changed
            raise EncodingFailed(f"an interceptor of {source.id} failed") from barrier.error

        return guarded

    def _asking(self, hook: str, *but: type[BaseException]) -> FaultBarrier:
        """Make a block in which plugins are asked: what they raise ends it, is counted and logged."""
        return FaultBarrier(*but, told=partial(self._failed, hook))

    def _failed(self, hook: str, error: BaseException) -> Refusal:
        """Count and log it. Returns what the client is told."""
        self.failures[hook] += 1
        kind = (hook, fault_key(error))
        if kind not in self._told and len(self._told) < 1_000:
            self._told.add(kind)
            log.error("a plugin failed", hook=hook, exc_info=error)
        return _FAILED


def _authenticators(plugins: PluginManager) -> frozenset[str]:
    return frozenset(name for name, _ in plugins.each("authenticate"))


def _let_in(identity: Identity, owner: str | None) -> Identity:
    return identity if identity.authenticator == owner else replace(identity, authenticator=owner)


def _is_time(expires_at: object) -> bool:
    """Say whether it is, though a plugin need not be checked by mypy. What is not finite would never be
    over."""
    if isinstance(expires_at, float):
        return math.isfinite(expires_at)
    return expires_at is None or (isinstance(expires_at, int) and not isinstance(expires_at, bool))


def _wrong(wanted: str, answer: object) -> TypeError:
    return TypeError(f"must return {wanted}, not {type(answer).__name__}")
